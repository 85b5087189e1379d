"""Translation of draft tokens to target tokens: unchanged if the vocabularies are equal, else through text.

Text is the common representation, as in SLEM (Timor et al. 2025, "Accelerating LLM Inference with Lossless
Speculative Decoding Algorithms for Heterogeneous Vocabularies") and in transformers' universal assisted
generation. The target verifies its own tokens, so a wrong translation costs only time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from tokenizers import Tokenizer

_SPACES = ("▁", "Ġ")
"""First characters of tokens that start a word, in sentencepiece's and in byte-level vocabularies."""
_BROKEN = "\ufffd"
"""Replacement character for incomplete UTF-8."""
_BEFORE = "\n"
"""Text before a word, which makes a tokenizer keep the word's first space."""
_MAX_WORDS = 4096
"""Number of cached translations of words."""


class Translation:
    """Translates draft tokens to target tokens. Not thread-safe.

    If the vocabularies are equal without their added tokens, ids pass unchanged. Otherwise it translates
    complete words: the draft's next token starts another word, or the draft has ended. (A longer word may
    have other tokens.)

    After a prompt that ends with white space, as in ChatML, a response starts without a space. Then the
    translation removes the draft's first space, and never passes ids unchanged.

    The translation ends at added tokens, at invalid UTF-8, and at text that the target's tokenizer does not
    reproduce. It never contains added tokens, except the target's end of sequence.
    """

    def __init__(
        self,
        draft_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        draft_eos_id: int,
        target_eos_id: int,
        target_prompt: Sequence[int],
    ) -> None:
        """Compare both vocabularies; `target_prompt` are the last token ids of the target's prompt."""
        self._draft, self._target = _Vocabulary(draft_tokenizer), _Vocabulary(target_tokenizer)
        self._draft_eos_id, self._target_eos_id = draft_eos_id, target_eos_id
        self._drops_space = not target_tokenizer.decode(target_prompt)[-1:].strip()
        self.unchanged = self._draft.ids == self._target.ids and not self._drops_space
        """Whether ids pass unchanged."""
        self._plain = frozenset(self._draft.ids.values())
        self._begins = {i for token, i in self._draft.ids.items() if token.startswith(_SPACES)}
        self._word = lru_cache(_MAX_WORDS)(self._translate)

    def __call__(
        self, tokens: Sequence[int], probs: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the target tokens of the draft's complete words, and their probabilities.

        The first target token of a word has the word's probability and the others have 1. So paths up to the
        end of a word have the same probability in both vocabularies. Further draft tokens only append to the
        result. `probs` may be longer than `tokens`.
        """
        end = next((i for i, token in enumerate(tokens) if token not in self._plain), len(tokens))
        has_ended = end < len(tokens) and tokens[end] == self._draft_eos_id
        translated, likely, done = list(tokens[:end]), list(probs[:end]), end
        if not self.unchanged:
            translated, likely, done = [], [], 0
            starts = [i for i in range(1, end) if tokens[i] in self._begins]
            for begin, following in pairwise([0, *starts, *[end] * has_ended]):
                word = self._word(tuple(tokens[begin:following]), self._drops_space and begin == 0)
                if not word:
                    break
                translated += word
                likely += [math.prod(probs[begin:following]), *[1.0] * (len(word) - 1)]
                done = following
        if has_ended and done == end:
            translated.append(self._target_eos_id)
            likely.append(probs[end])
        return tuple(translated), tuple(likely)

    def _translate(self, word: tuple[int, ...], drops_space: bool) -> tuple[int, ...]:
        """Return the target tokens of a word, or () if the target cannot write it."""
        text = self._draft.text(word)
        text = text.removeprefix(" ") if drops_space else text
        tokens = self._target.tokens(text)
        return () if _BROKEN in text or self._target.text(tokens) != text else tuple(tokens)


class _Vocabulary:
    """A tokenizer without its added tokens, so that no text can become one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self.ids = {t: i for t, i in tokenizer.get_vocab(with_added_tokens=False).items() if i not in added}
        layout = json.loads(tokenizer.to_str())
        layout |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._tokenizer = Tokenizer.from_str(json.dumps(layout))
        self._before = self._tokenizer.encode(_BEFORE).ids
        self._skipped = len(self._tokenizer.decode(self._before))

    def text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode([*self._before, *tokens])[self._skipped :]

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text; they decode to another text if its start merges with `_BEFORE`."""
        return self._tokenizer.encode(_BEFORE + text).ids[len(self._before) :]
