"""Frames encoded in replicas of their own, over which those of a window fan out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from ray.serve.handle import DeploymentHandle

from crossspec_ros.engine.batching import encode
from crossspec_ros.serving.options import ServeOptions

_LOG = logging.getLogger(__name__)

_PATIENCE_S = 2.0
"""For the frames of a window; then the target's own tower encodes them."""


class FrameEncoder:
    """A replica: the target's vision tower."""

    def __init__(self, options: ServeOptions) -> None:
        self._target = options.load_target()
        # Nobody reads here, and a large target's layers are most of it.
        self._target.body.layers = torch.nn.ModuleList()

    @torch.inference_mode()
    def encode(self, units: Sequence[np.ndarray]) -> list[Any]:
        """What the tower makes of each unit of (n, H, W, 3) uint8 RGB frames, on the CPU."""
        return [on_device(features, torch.device("cpu")) for features in encode(self._target, units)]


class Encoders:
    """Asks the replicas behind a handle; may be called from any thread."""

    def __init__(self, handle: DeploymentHandle, replicas: int, device: torch.device) -> None:
        self._handle, self._replicas, self._device = handle, replicas, device
        # A thread waits for each request; those of more robots queue.
        self._threads = ThreadPoolExecutor(4 * replicas, "encoders")
        self.failures = 0

    def __call__(self, units: Sequence[np.ndarray]) -> Future[Sequence[Any]]:
        """The features of each unit, as `VideoTarget.encode` has them."""
        return self._threads.submit(self._encode, units)

    def _encode(self, units: Sequence[np.ndarray]) -> list[Any]:
        try:
            # A call takes longer than a frame of a small tower, so that a replica gets its share in one.
            a_share = -(-len(units) // self._replicas)
            shares = [units[i : i + a_share] for i in range(0, len(units), a_share)]
            asked = [self._handle.encode.remote(share) for share in shares]
            found = [features for one in asked for features in one.result(timeout_s=_PATIENCE_S)]
            return [on_device(features, self._device) for features in found]
        except Exception as error:
            self.failures += 1
            _LOG.warning("frames are encoded by the target's own tower: %s", error)
            raise


def on_device(features: Any, device: torch.device) -> Any:
    """A tensor, or a dataclass with some, moved to a device."""
    if isinstance(features, torch.Tensor):
        return features.to(device)
    assert is_dataclass(features) and not isinstance(features, type)
    tensors = {
        each.name: value.to(device)
        for each in fields(features)
        if isinstance(value := getattr(features, each.name), torch.Tensor)
    }
    return replace(features, **tensors)
