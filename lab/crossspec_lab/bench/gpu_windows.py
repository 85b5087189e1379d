"""Windows of noise with scripted captions: decoders take turns at one window a second, then without a pause.

Random weights write no captions, so the rehearsal is prescribed. It is the recorded caption of half a second
earlier (pessimistic, since none of its frames is in the window), or the caption itself (optimistic).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Waiting, Written
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.bench.columns import CLOSE, EQUAL, FIRST, SOONER, TOKENS, WALL, rows
from crossspec_lab.bench.decoders import ALONE, GENERATE, HIDING
from crossspec_lab.bench.input_windows import event_shape
from crossspec_lab.bench.live import Decoder, take_turns, timed
from crossspec_lab.bench.records import Records
from crossspec_lab.bench.scripted_pair import ScriptedPair
from crossspec_lab.bench.statistics import spread
from crossspec_lab.bench.trace import Response, replay
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, Proposer, make_proposers
from crossspec_ros.drafting.proposers.chain import align
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.settings import PROPOSERS, REHEARSAL
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

ITSELF, EARLIER, NONE = "rehearsal: the caption itself", "rehearsal: caption of 0.5 s earlier", "no rehearsal"
"""Names of crossspec_ros, by its rehearsal."""
LIVE, HURRIED = "one window a second", "without a pause"
_WARM_UP = 3
"""Number of windows: each draft keeps its buffers until the next caption, so that the next draft needs
others."""
_NO_PAUSE_S = 0.001
"""Length of windows whose images are all there when the window before has its caption."""
_PROB = 0.9
_COLUMNS = (SOONER, WALL, CLOSE, FIRST, TOKENS, EQUAL)


class Case(NamedTuple):
    """A window of noise, its caption, and the recorded tokens of half a second earlier."""

    window: Window
    response: Response
    earlier: tuple[int, ...]


class PrescribedRehearsal(Proposer):
    """Proposes from the prescribed `draft` of each caption."""

    name = REHEARSAL

    def __init__(self) -> None:
        self.draft: tuple[int, ...] = ()

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        tokens = self.draft[align(context.tokens, self.draft) :][:budget]
        return DraftTree.chain(tokens, (_PROB,) * len(tokens), self.name)


def replay_windows(
    pair: ModelPair,
    cases: Sequence[tuple[Response, tuple[int, ...]]],
    hurried: int,
    heard: Sequence[Response] = (),
    window_s: float = 1.0,
) -> tuple[Records, dict[int, float]]:
    """Caption a window of noise for each case by all decoders in turn, the last ones without a pause.

    A case is a response and the tokens of half a second earlier. The caption memories begin with the captions
    `heard`. Raises AssertionError for a caption that is not the scripted one. Returns records under `LIVE`
    and `HURRIED`, and the seconds of a pass by its tokens.
    """
    scripted_pair = ScriptedPair(pair, QUESTION)
    with ExitStack() as stack:
        crossspec_ros = speculative_decoder(scripted_pair.pair)
        cost = crossspec_ros.policy.cost
        assert cost is not None
        captioned = timed(crossspec_ros, stack)

        def scripted(caption: Decoder[Window], prepare: Callable[[Case], None]) -> Decoder[Case]:
            def run(case: Case, trace: Trace) -> Written:
                wanted = scripted_pair.script(case.response)
                prepare(case)
                written = caption(case.window, trace)
                if written.tokens != wanted:
                    raise AssertionError(f"the script has {wanted}, but the decoder wrote {written.tokens}")
                return written

            return run

        def rehearsed(name: str, draft: Callable[[Case], tuple[int, ...]]) -> Decoder[Case]:
            rehearsal = PrescribedRehearsal()
            policy = Policy((rehearsal, *make_proposers(PROPOSERS)), cost)
            if heard:
                replay(heard, policy, name)

            def prepare(case: Case) -> None:
                tokens = draft(case)
                rehearsal.draft = (*tokens, pair.target.spec.eos_ids[0]) if tokens else ()
                crossspec_ros.policy = policy

            return scripted(captioned, prepare)

        def other(decoder: Any) -> Decoder[Case]:
            return scripted(timed(decoder, stack), lambda case: None)

        decoders = {
            ITSELF: rehearsed(ITSELF, lambda case: case.response.target),
            EARLIER: rehearsed(EARLIER, lambda case: case.earlier),
            NONE: rehearsed(NONE, lambda case: ()),
            ALONE: other(Waiting(crossspec_ros.alone())),
            HIDING: other(PublishedPrefillHiding(scripted_pair.pair)),
            GENERATE: other(TransformersGenerate(scripted_pair.pair, "plain")),
        }
        # The first passes are slow. The memories have these captions, or will need them last.
        warm = heard[-_WARM_UP:] or [response for response, _ in cases[-_WARM_UP:]]
        records, first = Records(), len(cases) - hurried
        for condition, some, length_s in (
            ("warming up", [(response, ()) for response in warm], window_s),
            (LIVE, cases[:first], window_s),
            (HURRIED, cases[first:], _NO_PAUSE_S),
        ):
            windows = zip(noise_windows(pair, length_s), track(some, condition), strict=False)
            for record in take_turns(decoders, (Case(window, *case) for window, case in windows), condition):
                records.add(record)
    return records, cost.table()


def noise_windows(pair: ModelPair, window_s: float) -> Iterator[Window]:
    """Yield windows of noise that last `window_s`."""
    length, spec = round(window_s * 1e9), pair.target.spec
    rng = np.random.default_rng(length)
    for index in count():
        event_images = noise(rng, *event_shape(pair))
        frames = noise(rng, spec.frames, spec.image_size)
        stamps = tuple(i * length // spec.frames for i in range(spec.frames))
        yield Window(index, 0, length, event_images, frames, stamps)


def noise(rng: np.random.Generator, images: int, size: int) -> np.ndarray:
    """Return (images, size, size, 3) uint8 of noise."""
    return rng.integers(0, 256, (images, size, size, 3), np.uint8)


def latencies(records: Records, pass_s: Mapping[int, float]) -> dict[str, Any]:
    """Return the figures by decoder, ready for JSON."""
    modes = rows(records, LIVE, _COLUMNS, ALONE)
    than_generate = rows(records, LIVE, [SOONER], GENERATE)
    for name in records.decoders(HURRIED):
        live = records.rows(LIVE, name)
        modes[name] |= {
            "target's own work, ms": spread([record.target_ms for record in live]),
            "without a pause, s": spread([record.ended_s for record in records.rows(HURRIED, name)]),
            "hidden share": spread([record.hidden_share or 0.0 for record in live]),
            "sooner than generate, times": than_generate[name][SOONER],
        }
    policy_cost_ms = {tokens: 1e3 * seconds for tokens, seconds in pass_s.items()}
    return {"windows": len(records.rows(LIVE, ALONE)), "modes": modes, "policy_cost_ms": policy_cost_ms}
