"""A CUDA stream of a thread's own, and the time that work in it takes; nothing of that on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class CudaStream:
    """Stream of its own for what is done inside `with stream():`, where the device has streams.

    A `first` stream goes before others of the same device. Of a model that is not torch's the device is a
    text, and torch is not needed.
    """

    def __init__(self, device: torch.device | str, first: bool = False) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._is_torch = not isinstance(device, str)
        if not isinstance(device, str) and device.type == "cuda":
            import torch

            self._stream = torch.cuda.Stream(device, priority=-1 if first else 0)
            # The weights have come on another.
            torch.cuda.synchronize(device)
            # It would plan anew for every length of a mask, which takes it longer than many passes.
            torch.backends.cuda.enable_cudnn_sdp(False)
            # Nor is float32 to be less than that in a tower's first layer.
            torch.backends.cudnn.allow_tf32 = False

    def mark(self) -> float | torch.cuda.Event:
        """This point of what is queued, see `seconds`."""
        if self._stream is None:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def seconds(self, since: Any, until: Any) -> float:
        """Duration of the work between two marks, without what was queued before it; waits for its end."""
        if self._stream is None:
            return until - since
        until.synchronize()
        return since.elapsed_time(until) / 1e3

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inference on this stream."""
        if not self._is_torch:
            yield
            return
        import torch

        with torch.inference_mode(), torch.cuda.stream(self._stream) if self._stream else nullcontext():
            yield
