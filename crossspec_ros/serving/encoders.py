"""Frames encoded in replicas of their own, over which those of a window fan out."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from ray.serve.handle import DeploymentHandle

from crossspec_ros.engine.batching import encode
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.serving.options import ServeOptions
from crossspec_ros.telemetry.pulse import Pulse

_LOG = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""Time for the frames of a window; then the target's own tower encodes them."""
_REST_S = 5.0
"""Time after a failure in which the target's own tower encodes all frames."""


class FrameEncoder:
    """A replica: the target's vision tower."""

    def __init__(self, options: ServeOptions) -> None:
        self._target = options.load_target()
        # Nobody reads here, and a large target's layers are most of it.
        self._target.body.layers = torch.nn.ModuleList()
        torch.cuda.empty_cache()

    def kind(self) -> str:
        """Processor and numbers that it calculates with."""
        return kind_of(self._target)

    @torch.inference_mode()
    def encode(self, units: Sequence[np.ndarray]) -> list[Any]:
        """Features of each unit of (n, H, W, 3) uint8 RGB frames, on the CPU."""
        return [on_device(features, torch.device("cpu")) for features in encode(self._target, units)]


class Encoders:
    """Asks the replicas behind a handle; may be called from any thread."""

    def __init__(self, handle: DeploymentHandle, replicas: int, target: VideoTarget) -> None:
        """Raises InputError where replicas do not calculate as the target does."""
        self._handle, self._replicas, self._device = handle, replicas, target.device
        self.pulses: list[Pulse] = []
        """Pulses of its threads, each of which waits for a request; those of more robots queue."""
        self._threads = ThreadPoolExecutor(4 * replicas, "encoders", self._begin_thread)
        # Not in the replica's own thread, where Ray Serve waits for nothing.
        found = self._threads.submit(lambda: handle.kind.remote().result()).result()
        wanted = kind_of(target)
        if found != wanted:
            raise InputError(
                f"encoders run on {found}, the target on {wanted}, and captions would not be its own: give "
                f"both the same ray_actor_options"
            )
        self.failures = 0
        self._rests_until_s = 0.0

    def __call__(self, units: Sequence[np.ndarray]) -> Future[Sequence[Any]]:
        """The features of each unit, as `VideoTarget.encode` has them."""
        if time.monotonic() < self._rests_until_s:
            failed: Future[Sequence[Any]] = Future()
            failed.set_exception(TimeoutError("the encoders have failed a moment ago"))
            return failed
        return self._threads.submit(self._encode, units)

    def _begin_thread(self) -> None:
        pulse = Pulse(f"encoder {len(self.pulses) + 1}")
        pulse.adopt()
        self.pulses.append(pulse)

    def _encode(self, units: Sequence[np.ndarray]) -> list[Any]:
        end_s = time.monotonic() + _PATIENCE_S
        asked: list[Any] = []
        try:
            # A call takes longer than a frame of a small tower, so that a replica gets its share in one.
            a_share = -(-len(units) // self._replicas)
            shares = [units[i : i + a_share] for i in range(0, len(units), a_share)]
            asked = [self._handle.encode.remote(share) for share in shares]
            found = [
                features
                for one in asked
                for features in one.result(timeout_s=max(0.0, end_s - time.monotonic()))
            ]
            return [on_device(features, self._device) for features in found]
        except BaseException as error:  # whatever it is, the target's own tower can do it
            self.failures += 1
            self._rests_until_s = time.monotonic() + _REST_S
            for one in asked:
                one.cancel()
            _LOG.warning("for %g s frames are encoded by the target's own tower: %r", _REST_S, error)
            raise


def kind_of(target: VideoTarget) -> str:
    """The processor and the numbers that a target calculates with."""
    device = target.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"{name} in {str(target.dtype).removeprefix('torch.')}"


def on_device(features: Any, device: torch.device) -> Any:
    """A tensor, or a dataclass with some, moved to a device; no part of a larger one any more, all of which
    would be sent."""
    if isinstance(features, torch.Tensor):
        return features.to(device, copy=True)
    assert is_dataclass(features) and not isinstance(features, type)
    tensors = {
        each.name: value.to(device, copy=True)
        for each in fields(features)
        if isinstance(value := getattr(features, each.name), torch.Tensor)
    }
    return replace(features, **tensors)
