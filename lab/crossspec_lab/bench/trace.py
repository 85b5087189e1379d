"""`crossspec bench trace`: the proposers and the policy against recorded outputs of a target.

Each response is replayed pass by pass. A proposer reads what a running system would have, that is the
verified tokens, the event draft and earlier responses. The recorded tokens decide which are accepted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.baselines.prompt_lookup import PromptLookup
from crossspec_lab.bench.report import write_figures
from crossspec_lab.bench.tables import Table
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import Context, Draft, PassResult, make_proposers
from crossspec_ros.engine.tree import DraftTree, follow
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.settings import EVENT_DRAFT

SHARED_IDS = 32000
"""From this token id on, Video-LLaVA and EventGPT have different tokens."""

COMBINED = "caption memory and event draft"
_LOOKUP = "lookup"
"""Prompt lookup, which is in the laboratory."""


VARIANTS = {
    COMBINED: ("memory", "event_draft"),
    "caption memory": ("memory",),
    "event draft": ("event_draft",),
    "prompt lookup": (_LOOKUP,),
}
"""Proposers of each replay."""
_MAX_BYTES = 64 << 20
"""Largest trace: some sixty thousand responses."""
_NOTHING = -1
"""Stands for the token after a response."""


@dataclass(frozen=True)
class Response:
    """One recorded response of the target, and what the event draft wrote about the same window."""

    target: tuple[int, ...]
    draft: tuple[int, ...]


@dataclass
class Replay:
    """The results of all passes."""

    passes: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    drafted: Counter[tuple[str, int]] = field(default_factory=Counter)
    accepted: Counter[tuple[str, int]] = field(default_factory=Counter)
    propose_ms: list[float] = field(default_factory=list)

    def acceptance_length(self, since: int = 0) -> float:
        """Tokens per pass, the target's own included, of the responses from `since` on."""
        return sum(self.tokens[since:]) / sum(self.passes[since:])


def run(args: argparse.Namespace) -> int:
    """Replay `args.file`, print tables, and write figures if requested."""
    for name in ("stride", "nodes"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} is {getattr(args, name)}, but it must be at least 1")
    responses, replays = read_trace(args.file)[:: args.stride], dict[str, Replay]()
    for name, names in VARIANTS.items():
        proposers = [PromptLookup()] if _LOOKUP in names else make_proposers(names)
        policy = Policy(proposers, None, Limits(max_nodes=args.nodes))
        replays[name] = replay(responses, policy, name)
        if name == COMBINED:
            reliability = calibrations(policy)
    figures = _figures(replays, args) | {"reliability": reliability}
    figures["captions_seen_before"] = seen_before([response.target for response in responses])
    lengths = {name: {"tokens a pass": length} for name, length in figures["ablations"].items()}
    title = f"{figures['responses']} responses, trees of {args.nodes} nodes"
    write_figures(args, figures, [Table(title, lengths, "proposers")])
    return 0


def read_trace(path: Path) -> list[Response]:
    """Read a JSONL trace, one object a line with `target_tokens` and maybe `draft_tokens`.

    Raises:
        InputError: the file is missing, empty, or a line is not such an object.
    """
    try:
        lines = read_small(path, _MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the trace '{path}' cannot be read ({error}): give a JSONL file") from None
    responses = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            target, draft = (tuple(map(int, row.get(k, ()))) for k in ("target_tokens", "draft_tokens"))
            if not all(0 <= token < 1 << 31 for token in (*target, *draft)):
                raise ValueError("a token is below 0 or has more than 31 bits")
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"line {number} of the trace '{path}' is no response ({error}): "
                'each must be an object like {"target_tokens": [450, 1820], "draft_tokens": []}'
            ) from None
        if not target:
            raise InputError(f"line {number} of the trace '{path}' has no target_tokens: leave that line out")
        shared = (i for i, token in enumerate(draft) if token >= SHARED_IDS)
        responses.append(Response(target, draft[: next(shared, len(draft))]))
    if not responses:
        raise InputError(f"the trace '{path}' is empty: give one with a response a line")
    return responses


def seen_before(captions: Sequence[tuple[int, ...]]) -> float:
    """Return the share of captions that are equal to an earlier one."""
    return 1 - len(set(captions)) / len(captions)


def replay(responses: Sequence[Response], policy: Policy, label: str) -> Replay:
    """Let the policy draft each response in turn, from the earlier ones."""
    result = Replay()
    # A running system has a limit, and does not foresee the end of a response.
    limit = max(len(response.target) for response in responses)
    for response in track(responses, description=f"replaying: {label}"):
        written, passes, target = 0, 0, response.target
        while written < len(target):
            drafts = {EVENT_DRAFT: Draft(response.draft, (1.0,) * len(response.draft))}
            context = Context("", target[:written], drafts)
            started = time.perf_counter()
            tree = policy.propose(context, unread=1, left=limit - written)
            result.propose_ms.append((time.perf_counter() - started) * 1e3)
            depths = [0, *tree.depths()]
            rest = (*target[written:], _NOTHING)
            path, _ = follow(tree, lambda node: rest[depths[1 + node]])  # noqa: B023
            new = target[written : written + len(path) + 1]
            _count(result, tree, path)
            ended = written + len(new) == len(target)
            policy.observe(PassResult(context, tree, path, new, ended))
            written += len(new)
            passes += 1
        result.passes.append(passes)
        result.tokens.append(written)
    return result


def calibrations(policy: Policy) -> dict[str, list[tuple[float, float, int]]]:
    """Return mean probability, observed acceptance and number of observations of each proposer's bins."""
    return {
        one.proposer.name: [(float(p / n), float(a / n), int(n)) for n, p, a in one.calibration.counts.T if n]
        for one in policy.sources
    }


def _count(result: Replay, tree: DraftTree, path: tuple[int, ...]) -> None:
    depths = tree.depths()
    for node, sources in enumerate(tree.sources):
        for source in sources:
            result.drafted[source, depths[node]] += 1
            result.accepted[source, depths[node]] += node in path


def _figures(replays: dict[str, Replay], args: argparse.Namespace) -> dict[str, Any]:
    combined = replays[COMBINED]
    sources = sorted({source for source, _ in combined.drafted})
    depths = sorted({depth for _, depth in combined.drafted})
    return {
        "trace": args.file.name,
        "stride": args.stride,
        "nodes": args.nodes,
        "responses": len(combined.passes),
        "mean_acceptance_length": combined.acceptance_length(),
        "last_third": combined.acceptance_length(since=len(combined.passes) * 2 // 3),
        "passes_per_caption": float(np.mean(combined.passes)),
        "propose_ms_p50": float(np.median(combined.propose_ms)),
        "propose_ms_p95": float(np.percentile(combined.propose_ms, 95)),
        "ablations": {name: one.acceptance_length() for name, one in replays.items()},
        "sources": {
            source: {
                "drafted": [combined.drafted[source, depth] for depth in depths],
                "accepted": [combined.accepted[source, depth] for depth in depths],
            }
            for source in sources
        },
    }
