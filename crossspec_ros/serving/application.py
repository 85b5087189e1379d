"""The Ray Serve application: one replica holds a target and the streams of its robots.

`crossspec serve` runs it on this machine, `serve deploy config/serve.yaml` on a cluster. Replicas, placement,
health, rolling updates and autoscaling are Ray Serve's.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import metrics
from ray.serve.grpc_util import RayServegRPCContext, gRPCInputStream

from crossspec_ros.errors import InputError
from crossspec_ros.serving.conversation import again_and_again, converse, refusal
from crossspec_ros.serving.fleet import COUNTS
from crossspec_ros.serving.options import load_fleet, load_target, read_tokens
from crossspec_ros.settings import ServeSettings
from crossspec_ros.telemetry.process_memory import keep_heap
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

SERVICER = "crossspec_ros.serving.conversation:add_servicer"
GAUGES = {
    "robots": "robots whose stream is open",
    "answering": "windows whose answer is in work",
    **COUNTS,
}
"""Gauges that Prometheus gets, each as ray_crossspec_NAME."""
ANSWER_MS = "answer_ms"
_BOUNDS_MS: list[float] = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120]
_TICK_S = 5.0
_STRANGERS = 64
"""Streams that a replica takes beside those of all robots: they say no hello, are refused or not read."""
_MOST_OF_A_TOKEN = 4
"""Streams of one token; with one more the oldest ends, which may be of a link that is gone."""


class CaptionServer:
    """A replica: the target in its own process, and up to `robots` streams."""

    def __init__(self, settings: ServeSettings) -> None:
        self._fleet = load_fleet(settings, load_target(settings))
        self._tokens = read_tokens(Path(settings.tokens)) if settings.tokens else None
        # The streams that are open, by the robot whose token they have.
        self._open: defaultdict[str, list[asyncio.Task[Any] | None]] = defaultdict(list)
        self._gauges = {name: metrics.Gauge(f"crossspec_{name}", what) for name, what in GAUGES.items()}
        times = metrics.Histogram(f"crossspec_{ANSWER_MS}", "from a question to its last word", _BOUNDS_MS)
        self._fleet.on_answer = lambda seconds: times.observe(1e3 * seconds)
        keep_heap()
        loop = asyncio.get_event_loop()
        self._tasks = [
            loop.create_task(again_and_again(_TICK_S, self._tick)),
            loop.create_task(again_and_again(1.0, self._look)),
        ]

    async def Stream(
        self, messages: gRPCInputStream, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[wire.Down]:
        """One robot, see `captions.proto`."""
        token = dict(grpc_context.invocation_metadata()).get("authorization", "").removeprefix("Bearer ")
        tokens = self._tokens
        owner = "".join([name for name, known in (tokens or {}).items() if _is_same(token, known)])
        reason = ""
        if tokens is not None and not owner:
            reason = (
                "the token is not that of any robot: set the one that the server's file of tokens has for it"
            )
        # Before a hello: strangers who never say one would hold what robots need.
        if reason:
            self._fleet.counts["refused"] += 1
            yield refusal(reason)
            return

        def admit(hello: wire.Hello) -> None:
            if tokens is not None and not _is_same(token, tokens.get(hello.robot, "")):
                self._fleet.counts["refused"] += 1
                raise InputError(
                    f"the token is not that of the robot '{hello.robot[:64]}': set the one that the server's "
                    f"file of tokens has for it"
                )

        streams, mine = self._open[owner], asyncio.current_task()
        if owner and len(streams) == _MOST_OF_A_TOKEN and (oldest := streams.pop(0)):
            oldest.cancel()
        streams.append(mine)
        try:
            async for message in converse(self._fleet, messages, admit):
                yield message
        finally:
            if mine in streams:
                streams.remove(mine)

    def check_health(self) -> None:
        """Raises where a thread is dead or stuck; Ray Serve then starts another replica."""
        if fault := self._fleet.threads.fault:
            raise RuntimeError(fault)
        if any(task.done() for task in self._tasks):
            raise RuntimeError("nobody looks at the threads any more")

    def __del__(self) -> None:
        if fleet := getattr(self, "_fleet", None):
            fleet.close()

    async def _tick(self) -> None:
        # It saves memories, for which no stream must wait.
        await asyncio.to_thread(self._fleet.let_idle_go)
        # What streams leave behind would pile up else.
        gc.collect()
        values = self._fleet.counts | {
            "robots": self._fleet.robots,
            "answering": self._fleet.engine.answering,
        }
        for name, gauge in self._gauges.items():
            gauge.set(values[name])

    async def _look(self) -> None:
        before = self._fleet.threads.fault
        fault = self._fleet.threads.look()
        if fault and not before:
            _LOG.error("%s: this replica ends, and another one takes its place", fault)


def _is_same(token: str, known: str) -> bool:
    """In a time that does not tell where they differ."""
    return bool(known) and hmac.compare_digest(known.encode(), token.encode())


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application of a server's settings, for `serve deploy`. Raises InputError for invalid ones.

    Ray Serve gets `deployment` unchanged: num_replicas, autoscaling_config, ray_actor_options and the like.
    """
    values = dict(arguments)
    deployed = values.pop("deployment", {})
    settings = ServeSettings.of(values)
    limits = {"max_ongoing_requests": settings.robots + _STRANGERS, **deployed}
    deployment: serve.Deployment = serve.deployment(name="target", **limits)(CaptionServer)
    return deployment.bind(settings)
