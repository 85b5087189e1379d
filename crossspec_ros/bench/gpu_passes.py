"""What single passes take on a device: copies, verification by size, stages, and both models side by side."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from crossspec_ros.bench.gpu_told import ToldDraft
from crossspec_ros.drafting.cost import SIZES
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.footprint import measured_bytes
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.telemetry.trace import DRAFT_STAGES, Trace
from crossspec_ros.training.world.grammar import QUESTION

_TREE = 32
"""Nodes of the last chunk's tree."""

Seconds = dict[str, list[float]]
"""Times of all repeats, by what was timed."""


def wait(device: torch.device) -> None:
    """Until the device has done all that is queued in the current stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long `work` takes, with all that it queues in the current stream of `device`."""
    wait(device)
    started = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - started


def copy_bandwidth(device: torch.device, size: int, repeats: int) -> list[float]:
    """Bytes per second, read and written together, of copies of `size` bytes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    times = [seconds(lambda: target.copy_(source), device) for _ in range(repeats + 1)]
    return [2 * size / took for took in times[1:]]


def pass_bytes(pair: ModelPair, context: int) -> int:
    """Bytes that a pass of the target over one token reads at least: layers, head, and the KV of `context`
    tokens."""
    body, text = pair.target.model.language_model, pair.target.config.text_config
    weights = measured_bytes(body) - measured_bytes(body.embed_tokens) + measured_bytes(pair.target.lm_head)
    width = text.num_hidden_layers * text.num_key_value_heads * text.head_dim
    return weights + 2 * width * context * pair.target.dtype.itemsize


def noise(rng: np.random.Generator, images: int, size: int) -> np.ndarray:
    """(images, size, size, 3) uint8 that nobody has seen."""
    return rng.integers(0, 256, (images, size, size, 3), np.uint8)


def hidden_share(trace: Trace) -> float:
    """The share of a trace's draft work that was hidden (`Trace.hidden`); 0 where there was none."""
    stages = trace.stages
    return trace.hidden / (sum(stages.get(stage, 0.0) for stage in DRAFT_STAGES) or 1.0)


@dataclass
class Overlap:
    """Seconds of the draft, of as many windows read by the target as last longer, and of both at once.

    `telemetry` is which share of the draft's spans lay beside the target's (`Trace.hidden`), `traces` are
    those of both at once.
    """

    draft: list[float] = field(default_factory=list)
    target: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    target_beside: list[float] = field(default_factory=list)
    telemetry: list[float] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    windows: int = 1

    @property
    def hidden(self) -> np.ndarray:
        """The share of the draft that cost nothing, by repeat."""
        alone = np.add(self.draft, self.target)
        return np.divide(alone - self.together, self.draft)

    @property
    def slowdown(self) -> np.ndarray:
        """How much longer the target took beside the draft, by repeat."""
        return np.divide(self.target_beside, self.target)


class Passes:
    """Both models of a pair on their lanes, warm; every measurement takes `repeats` turns."""

    def __init__(self, pair: ModelPair, repeats: int, is_static: bool | None = None) -> None:
        self._pair, self._repeats = pair, repeats
        self._target, self._draft = TargetModel(pair, is_static), DraftModel(pair, is_static)
        self._rng = np.random.default_rng(0)
        self.context = 0
        """Tokens before those that `verify` puts."""
        self._target.warm_up(1)
        self._draft.warm_up()

    @torch.inference_mode()
    def verify(self) -> dict[int, list[float]]:
        """T_verify(n) in seconds, behind a window's frames and a question, size by size in each repeat."""
        times: dict[int, list[float]] = {size: [] for size in SIZES}
        with self._target.lane():
            session = self._session(self._frames())
            for _ in range(self._repeats):
                session.append_prompt(QUESTION)
                session.verify(DraftTree())
                for size in SIZES:
                    session.commit((), 0)
                    a_pass = partial(_choice, session, DraftTree.filler(size - 1))
                    times[size].append(seconds(a_pass, self._pair.target.device))
            config = self._pair.target.config
            self.context = config.video_seq_length + len(session.question_ids)
        return times

    def stages(self, tokens: int) -> Seconds:
        """Each stage alone; the draft writes `tokens`."""
        times: Seconds = defaultdict(list)
        for repeat in range(self._repeats + 1):
            if repeat == 1:
                times.clear()  # the first was to warm up
            frames, trace = self._frames(), Trace()
            self._frame_by_frame(times, frames)
            self._at_once(times, frames)
            self._write(trace, tokens)
            spans = trace.stages
            times["draft encode"].append(spans["event_encode"] / 1e3)
            times["draft prefill"].append(spans["draft_prefill"] / 1e3)
            times["draft token"].append(spans["draft_decode"] / 1e3 / (tokens - 1))
        return times

    @torch.inference_mode()
    def _frame_by_frame(self, times: Seconds, frames: np.ndarray) -> None:
        device, tree = self._pair.target.device, DraftTree.filler(_TREE)
        with self._target.lane():
            session = TargetSession(self._target, Trace())
            for frame in frames[:-1]:
                times["frame encode"].append(seconds(partial(session.append_frame, frame), device))
                times["frame prefill"].append(seconds(session.prefill, device))
            session.append_frame(frames[-1])
            session.append_prompt(QUESTION)
            last = seconds(partial(_choice, session, tree), device)
            times[f"last frame, question, {_TREE} nodes"].append(last)

    @torch.inference_mode()
    def _at_once(self, times: Seconds, frames: np.ndarray) -> None:
        """As the target alone reads a window that has closed; what its tower makes of it is known by now."""
        with self._target.lane():
            session = self._session(frames)
            session.append_prompt(QUESTION)
            all_of_it = seconds(partial(_choice, session, DraftTree()), self._pair.target.device)
            times["window prefill at once"].append(all_of_it)

    def overlap(self, tokens: int) -> Overlap:
        """The draft alone, the target alone, both at once, in turns; the draft writes `tokens`."""
        result = Overlap()
        for _ in range(2):  # the first is to warm up
            draft, target = self._write(Trace(), tokens), self._read(Trace(), self._windows(1))
        result.windows = math.ceil(draft / target)
        for _ in range(self._repeats):
            result.draft.append(self._write(Trace(), tokens))
            result.target.append(self._read(Trace(), self._windows(result.windows)))
            trace, windows, ready = Trace(), self._windows(result.windows), threading.Event()
            running = self._draft.submit(self._draft_alone, trace, tokens, ready)
            ready.wait()
            started = time.perf_counter()
            result.target_beside.append(self._read(trace, windows))
            running.result()
            result.together.append(time.perf_counter() - started)
            result.telemetry.append(hidden_share(trace))
            result.traces.append(trace)
        return result

    def close(self) -> None:
        """End the draft's thread."""
        self._draft.close()

    def _write(self, trace: Trace, tokens: int) -> float:
        return self._draft.submit(self._draft_alone, trace, tokens).result()

    def _draft_alone(self, trace: Trace, tokens: int, ready: threading.Event | None = None) -> float:
        images = noise(self._rng, self._pair.event_images, self._pair.event_image_size)
        draft = ToldDraft(self._pair, images, QUESTION, (0,) * tokens, self._draft.readers)
        if ready:
            ready.set()
        return seconds(lambda: draft.run(trace), self._pair.draft.device)

    @torch.inference_mode()
    def _read(self, trace: Trace, windows: list[np.ndarray]) -> float:
        """Frame by frame, as windows that are open are read."""

        def read_all() -> None:
            for frames in windows:
                self._read_window(trace, frames)

        with self._target.lane():
            return seconds(read_all, self._pair.target.device)

    def _read_window(self, trace: Trace, frames: np.ndarray) -> None:
        session = TargetSession(self._target, trace)
        for frame in frames:
            session.append_frame(frame)
            session.prefill()

    def _windows(self, count: int) -> list[np.ndarray]:
        return [self._frames() for _ in range(count)]

    def _frames(self) -> np.ndarray:
        return noise(self._rng, self._pair.frames, self._pair.frame_size)

    def _session(self, frames: np.ndarray) -> TargetSession:
        session = TargetSession(self._target, Trace())
        for frame in frames:
            session.append_frame(frame)
        return session


def _choice(session: TargetSession, tree: DraftTree) -> None:
    """A pass with what makes it one: the host knows the tokens."""
    session.verify(tree).argmax(-1).tolist()
