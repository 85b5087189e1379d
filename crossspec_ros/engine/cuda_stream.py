"""CUDA stream of one thread, with timing of its work. On the CPU it only measures time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class CudaStream:
    """Context manager for inference: `with stream():` uses a stream of its own if the device is a GPU.

    The device is a string if the model does not run in torch; then torch is not imported.
    """

    def __init__(self, device: torch.device | str, is_urgent: bool = False) -> None:
        """Create the stream; the GPU runs the work of an urgent one before that of others."""
        self._stream: torch.cuda.Stream | None = None
        self._is_torch = not isinstance(device, str)
        if not isinstance(device, str) and device.type == "cuda":
            import torch

            self._stream = torch.cuda.Stream(device, priority=-1 if is_urgent else 0)
            # The weights were copied on another stream.
            torch.cuda.synchronize(device)
            # cuDNN makes a new plan for every mask length, which takes longer than many passes.
            torch.backends.cuda.enable_cudnn_sdp(False)
            # TF32 would make the first layer of a float32 tower less precise.
            torch.backends.cudnn.allow_tf32 = False

    def mark(self) -> Any:
        """Record a mark in the queued work, for `seconds`."""
        if self._stream is None:
            return time.perf_counter()
        import torch

        return self._stream.record_event(torch.cuda.Event(enable_timing=True))

    def seconds(self, since: Any, until: Any) -> float:
        """Wait for the second mark, and return the time between both."""
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

        # `torch.cuda.stream(None)` would create a CUDA context for models on the CPU.
        with torch.inference_mode(), torch.cuda.stream(self._stream) if self._stream else nullcontext():
            yield
