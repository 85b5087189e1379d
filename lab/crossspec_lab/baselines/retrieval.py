"""REST: draft trees are looked up in a datastore of texts of the same kind."""

from __future__ import annotations

from collections.abc import Iterable

from crossspec_lab.baselines.one_shot import Guess, OneShot
from crossspec_lab.baselines.suffix_array import SuffixArray, Tokens
from crossspec_lab.heads.growing import grow
from crossspec_lab.train.smol_base import CONFIG
from crossspec_lab.world import english, phrases
from crossspec_lab.world.dataset import scenes_of
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import found
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

LONGEST = 16
"""Highest number of last tokens that are looked up."""
AHEAD = 10
"""Highest number of tokens of a continuation."""
NODES = 64
"""Highest number of nodes of a draft tree."""
CAPTIONS = 2000
"""Captions in the default datastore."""


class Retrieval(OneShot):
    """REST (He et al., NAACL 2024), with the published sizes.

    The longest run of last tokens, 16 down to 1, that is in the datastore counts. The draft tree has the 64
    most frequent nodes of the trie of its continuations, up to 10 tokens deep. The default datastore is that
    of `training_captions`.
    """

    def __init__(self, pair: ModelPair, datastore: Iterable[Tokens] | None = None) -> None:
        super().__init__(pair)
        captions = training_captions(pair.target) if datastore is None else datastore
        self._datastore = SuffixArray(LONGEST + AHEAD, captions)

    def drafter(self, window: Window, question: str, trace: Trace) -> Guess:
        prompt = self.prompt(question)
        return lambda tokens: self._retrieved(prompt + tokens)

    def _retrieved(self, text: Tokens) -> DraftTree:
        run = self._datastore.match(text, LONGEST)

        def children(path: Tokens) -> list[tuple[int, float]]:
            counts = self._datastore.following(run + path) if run and len(path) < AHEAD else {}
            return [(token, count / sum(counts.values())) for token, count in counts.items()]

        return grow(children, NODES)


def training_captions(target: VideoTarget, count: int = CAPTIONS, name: str = "") -> list[Tokens]:
    """Return the captions of the first `count` training windows of a target, whose folder is `name`."""
    caption = english.caption if name and (found(name) / CONFIG).is_file() else phrases.caption
    encoder, ends = target.tokenizer, target.spec.eos_ids[:1]
    question = encoder.decode(target.prompt_ids(phrases.QUESTION)[1], skip_special_tokens=False)
    space = "" if question[-1].isspace() else " "
    texts = (space + caption(scenes_of(seed)[-2]) for seed in range(count))
    return [(*encoder.encode(text, add_special_tokens=False).ids, *ends) for text in texts]
