"""The Ray Serve application: each replica holds a target and the streams of its robots.

`crossspec serve` runs it on this machine, `serve deploy config/serve.yaml` on a cluster. Placement, rolling
updates and autoscaling are Ray Serve's.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from hmac import compare_digest
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import metrics
from ray.serve.grpc_util import RayServegRPCContext, gRPCInputStream

from crossspec_ros.errors import failures_logged
from crossspec_ros.serving.conversation import SET_TOKEN, converse, refusal
from crossspec_ros.serving.fleet import COUNTS
from crossspec_ros.serving.load_fleet import load_fleet, load_target, read_tokens
from crossspec_ros.settings import ServeSettings
from crossspec_ros.telemetry.process_memory import keep_heap
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

SERVICER = "crossspec_ros.serving.conversation:add_servicer"
GAUGES = {"robots": "open streams of robots", "answering": "answers in work", **COUNTS}
"""Prometheus gauges, each as ray_crossspec_NAME."""
ANSWER_MS = "answer_ms"
_BOUNDS_MS: list[float] = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120]
_SPARE_STREAMS = 64
"""Additional streams of a replica: new, refused and unread ones."""
_MAX_STREAMS = 4
"""Maximum streams per token. One more ends the oldest, whose link may be broken."""


class CaptionServer:
    """A replica: the target in its own process, and up to `robots` streams."""

    def __init__(self, settings: ServeSettings) -> None:
        self._fleet = load_fleet(settings, load_target(settings))
        self._tokens = read_tokens(Path(settings.tokens)) if settings.tokens else {}
        # Open streams by the robot that the token belongs to.
        self._streams: defaultdict[str, list[asyncio.Task[Any] | None]] = defaultdict(list)
        self._gauges = {name: metrics.Gauge(f"crossspec_{name}", what) for name, what in GAUGES.items()}
        times = metrics.Histogram(f"crossspec_{ANSWER_MS}", "time from question to last word", _BOUNDS_MS)
        self._fleet.on_answer = lambda seconds: times.observe(1e3 * seconds)
        keep_heap()

    async def Stream(
        self, messages: gRPCInputStream, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[wire.Down]:
        """Serve one robot, see `captions.proto`."""
        metadata = dict(grpc_context.invocation_metadata())
        token = metadata.get("authorization", "").removeprefix("Bearer ").encode()
        owner = next((name for name, own in self._tokens.items() if compare_digest(own.encode(), token)), "")
        if self._tokens and not owner:
            self._fleet.counts["refused"] += 1
            yield refusal(f"the token belongs to no robot: {SET_TOKEN}")
            return
        streams, task = self._streams[owner], asyncio.current_task()
        if owner and len(streams) == _MAX_STREAMS and (oldest := streams.pop(0)):
            oldest.cancel()
        streams.append(task)
        try:
            async for message in converse(self._fleet, messages, owner):
                yield message
        finally:
            if task in streams:
                streams.remove(task)

    async def check_health(self) -> None:
        """Disconnect silent robots and set the gauges. Raises RuntimeError if a thread is dead or stuck.

        Ray Serve calls this each second, and replaces the replica after an error.
        """
        if fault := self._fleet.threads.look():
            _LOG.error("%s: Ray Serve replaces this replica", fault)
            raise RuntimeError(fault)
        with failures_logged(_LOG, logging.ERROR, "failed to disconnect silent robots"):
            # In a thread, because this saves caption memories.
            await asyncio.to_thread(self._fleet.disconnect_idle)
        # Ended streams leave reference cycles.
        gc.collect()
        values = {"robots": self._fleet.robots, "answering": self._fleet.engine.answering}
        for name, value in (self._fleet.counts | values).items():
            self._gauges[name].set(value)

    def __del__(self) -> None:
        if fleet := getattr(self, "_fleet", None):
            fleet.close()


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application for `serve deploy`. Raises InputError for invalid settings.

    Ray Serve gets `deployment` unchanged: num_replicas, autoscaling_config, ray_actor_options and the like.
    """
    values = dict(arguments)
    chosen = values.pop("deployment", {})
    settings = ServeSettings.of(values)
    options: dict[str, Any] = {"max_ongoing_requests": settings.robots + _SPARE_STREAMS}
    options |= {"health_check_period_s": 1.0, **chosen}
    deployment: serve.Deployment = serve.deployment(name="target", **options)(CaptionServer)
    return deployment.bind(settings)
