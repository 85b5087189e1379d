"""REST: drafts are looked up in a datastore of texts of the same kind."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.suffix_array import SuffixArray, Tokens
from crossspec_lab.baselines.written import Written
from crossspec_lab.train.smol_base import CONFIG
from crossspec_lab.world import english
from crossspec_lab.world.dataset import scenes_of
from crossspec_lab.world.phrases import QUESTION, caption
from crossspec_lab.world.scene import Scene
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import found
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

LONGEST = 16
"""Last tokens that are looked for at most."""
AHEAD = 10
"""Tokens of a continuation at most."""
NODES = 64
"""Nodes of a draft tree at most."""
CAPTIONS = 2000
"""In the datastore, unless another is given."""


class Retrieval(OneShot):
    """REST (He et al., NAACL 2024), with the published sizes.

    The longest run of last tokens, 16 down to 1, that is in the datastore counts; of the trie of all that
    followed it there, up to 10 tokens deep, the 64 most frequent nodes are put to the target. A datastore of
    another kind than `training_captions` may be given.
    """

    def __init__(self, pair: ModelPair, datastore: Iterable[Tokens] | None = None) -> None:
        super().__init__(pair)
        captions = training_captions(pair.target) if datastore is None else datastore
        self._datastore = SuffixArray(LONGEST + AHEAD, captions)

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        prompt = self.pair.target.prompt_ids(question)[1]
        return self.answer(window, question, trace, lambda said: self._retrieved(prompt + said))

    def _retrieved(self, text: Tokens) -> DraftTree:
        run = self._datastore.match(text, LONGEST)
        if not run:
            return DraftTree()
        ids: list[int] = []
        parents: list[int] = []
        probs: list[float] = []
        # The edge of the trie, most frequent and then nearest the root first: count, parent, probability, and
        # the tokens to a node.
        edge: list[tuple[int, int, float, Tokens]] = []

        def open_up(node: int, path: Tokens) -> None:
            counts = self._datastore.following(run + path) if len(path) < AHEAD else {}
            total = sum(counts.values())
            for token, count in counts.items():
                heapq.heappush(edge, (-count, node, count / total, (*path, token)))

        open_up(ROOT, ())
        while edge and len(ids) < NODES:
            _, parent, prob, path = heapq.heappop(edge)
            ids.append(path[-1])
            parents.append(parent)
            probs.append(prob)
            open_up(len(ids) - 1, path)
        return DraftTree(tuple(ids), tuple(parents), tuple(probs), (("retrieval",),) * len(ids))


def training_captions(target: VideoTarget, count: int = CAPTIONS, name: str = "") -> list[Tokens]:
    """Return the captions of the first `count` training windows of a target, whose folder is `name`."""
    taught = taught_captions(name)
    return [taught_tokens(target, taught, seed) for seed in range(count)]


def taught_tokens(target: VideoTarget, taught: Callable[[Scene], str], seed: int) -> Tokens:
    """The caption of window `seed` as a target was taught it."""
    asked = target.tokenizer.decode(target.prompt_ids(QUESTION)[1], skip_special_tokens=False)
    text = ("" if asked[-1].isspace() else " ") + taught(scenes_of(seed)[-2])
    return (*target.tokenizer.encode(text, add_special_tokens=False).ids, target.spec.eos_ids[0])


def taught_captions(target: str | None) -> Callable[[Scene], str]:
    """Captions as the target in this folder was taught them, or the tiny pair's where none is named."""
    return english.caption if target and (found(target) / CONFIG).is_file() else caption
