"""A draft in the target's vocabulary: unchanged where both share one, else through its text.

As in TLI (Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies"), tokens that both know are proposed as they are. As in its SLEM and in
transformers' universal assisted generation, text carries all others. The target verifies its own tokens, so
that a wrong translation costs time only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from tokenizers import Tokenizer

_DRAFT_PROMPT = "ASSISTANT:"
"""End of a draft's prompt; its text begins with a space."""
_WORD_BEGINS = re.compile(r"(?<=\s)(?=\S)")
_BROKEN = "\ufffd"
"""Character that incomplete UTF-8 decodes to."""
_MAX_KNOWN = 4096
"""Words whose translation is remembered."""


class Translation:
    """Translates draft tokens to target tokens.

    Where all tokens but the added ones have the same ids, ids pass unchanged. Otherwise a word is translated
    once the draft's next token begins another or the draft has ended, because a word that grows may be
    segmented anew.

    Behind a prompt that ends with white space, as ChatML's does, a response begins without a space. The
    draft's first space is left out then, and no ids pass unchanged.

    The translation ends at added tokens, at invalid UTF-8, and at text that the target's tokenizer would not
    decode to the same text. It contains tokens of the target's model and its end of sequence only. For one
    thread.
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
        context = _WORD_BEGINS.split(target_tokenizer.decode(target_prompt))[-1]
        self._draft = _Vocabulary(draft_tokenizer, _DRAFT_PROMPT)
        self._target = _Vocabulary(target_tokenizer, context)
        self._draft_eos_id, self._target_eos_id = draft_eos_id, target_eos_id
        self._drops_space = not context[-1:].strip()
        self.unchanged = self._draft.ids == self._target.ids and not self._drops_space
        """Whether ids pass as they are."""
        self._text = lru_cache(len(self._draft.ids))(lambda token: self._draft.text([token]))
        self._known = lru_cache(_MAX_KNOWN)(self._translate)

    def __call__(
        self, tokens: Sequence[int], probs: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the certain part of a draft: target tokens and their probabilities.

        The first target token of a word has the word's probability and the others 1, so that the path up to
        the end of any word is as probable in both vocabularies. A draft that has grown gives what it gave
        before, and more. `probs` may be longer than `tokens`.
        """
        end = next((i for i, token in enumerate(tokens) if token not in self._draft), len(tokens))
        ended = end < len(tokens) and tokens[end] == self._draft_eos_id
        translated, likely, begin = list(tokens[:end]), list(probs[:end]), end
        if not self.unchanged:
            translated, likely, begin = [], [], 0
            for run in self._runs(tokens[:end], ended):
                word = self._known(run, self._drops_space and begin == 0)
                if not word:
                    break
                translated += word
                likely += [math.prod(probs[begin : begin + len(run)]), *[1.0] * (len(word) - 1)]
                begin += len(run)
        if ended and begin == end:
            translated.append(self._target_eos_id)
            likely.append(probs[end])
        return tuple(translated), tuple(likely)

    def _runs(self, tokens: Sequence[int], ended: bool) -> Iterator[tuple[int, ...]]:
        """Yield the tokens of each complete word."""
        begin = 0
        for i in range(1, len(tokens)):
            # The last byte of a wide space is broken, and no end of a word.
            last = self._text(tokens[i - 1])[-1:]
            if self._text(tokens[i])[:1] == " " and last.strip() and last != _BROKEN:
                yield tuple(tokens[begin:i])
                begin = i
        if ended and begin < len(tokens):
            yield tuple(tokens[begin:])

    def _translate(self, run: tuple[int, ...], drops_space: bool) -> tuple[int, ...]:
        """Return the target tokens of a word; none where the target cannot write it."""
        text = self._draft.text(run)
        text = text.removeprefix(" ") if drops_space else text
        tokens = self._target.tokens(text)
        if _BROKEN in text or self._target.text(tokens) != text or any(i not in self._target for i in tokens):
            return ()
        return tuple(tokens)


class _Vocabulary:
    """A tokenizer behind the prompt's last word, without its added tokens, so that no text can become one."""

    def __init__(self, tokenizer: Tokenizer, context: str) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self.ids = {t: i for t, i in tokenizer.get_vocab(with_added_tokens=False).items() if i not in added}
        self._ids = frozenset(self.ids.values())
        layout = json.loads(tokenizer.to_str())
        layout |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._tokenizer = Tokenizer.from_str(json.dumps(layout))
        self._before = context
        self._context = self._tokenizer.encode(context).ids
        self._context_length = len(self._tokenizer.decode(self._context))

    def __contains__(self, token: int) -> bool:
        return token in self._ids

    def text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode([*self._context, *tokens])[self._context_length :]

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text; they decode to another where its beginning fuses with the prompt."""
        return self._tokenizer.encode(self._before + text).ids[len(self._context) :]
