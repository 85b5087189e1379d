"""A CUDA stream of a thread's own, and the time that work in it takes; nothing of that on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class CudaStream:
    """Stream of its own for inference inside `with stream():`, where the device has streams.

    A `first` stream goes before others of the same device. The device of a model that is not torch's is a
    text, and torch is not needed.
    """

    def __init__(self, device: torch.device | str, first: bool = False) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._is_torch = not isinstance(device, str)
        if not isinstance(device, str) and device.type == "cuda":
            import torch

            self._stream = torch.cuda.Stream(device, priority=-1 if first else 0)
            # The weights have come on another stream.
            torch.cuda.synchronize(device)
            # cuDNN would plan anew for every length of a mask, which takes longer than many passes.
            torch.backends.cuda.enable_cudnn_sdp(False)
            # A tower's first layer in float32 must not be less precise.
            torch.backends.cudnn.allow_tf32 = False

    def mark(self) -> Any:
        """Return this point of the queued work, see `seconds`."""
        if self._stream is None:
            return time.perf_counter()
        import torch

        return self._stream.record_event(torch.cuda.Event(enable_timing=True))

    def seconds(self, since: Any, until: Any) -> float:
        """Return the duration of the work between two marks; waits for its end."""
        if self._stream is None:
            return until - since
        until.synchronize()
        return since.elapsed_time(until) / 1e3

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if not self._is_torch:
            yield
            return
        import torch

        # `torch.cuda.stream(None)` would make a CUDA context for models on the CPU.
        with torch.inference_mode(), torch.cuda.stream(self._stream) if self._stream else nullcontext():
            yield
