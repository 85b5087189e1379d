"""A CUDA stream of a thread's own, and the time that work in it takes; nothing of that on the CPU."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class CudaStream:
    """Stream of its own for what is done inside `with stream():`, where the device has streams.

    A `first` stream goes before others of the same device.
    """

    def __init__(self, device: torch.device, first: bool = False) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
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
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def seconds(self, since: Any, until: Any) -> float:
        """Duration of the work between two marks, without what was queued before it; waits for its end."""
        if self._stream is None:
            return until - since
        until.synchronize()
        return since.elapsed_time(until) / 1e3

    def __call__(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()
