"""A draft in the target's vocabulary: as it is where the two share one, through its text where they do not.

From TLI (Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies") comes that only tokens that both know are proposed as they are; from its SLEM,
and from transformers' universal assisted generation, that text carries everything else and that the target
verifies its own tokens, so that a wrong guess costs time only. The latter re-tokenises a stretch of text
every round and searches for where it fits; here words are translated one by one, which needs no search.
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
"""Character that bytes decode to which are not a whole one."""

_KNOWN = 4096


class Translation:
    """Draft tokens to target tokens; both tokenizers are compared once, here.

    Where all tokens but the added ones have the same ids, those pass unchanged. The pre-tokenisers need not
    be written alike: those of LLaMA's vocabulary differ by the version that converted it.

    Behind a target's prompt that ends with white space, as ChatML's does, a response begins without the space
    that it has behind a colon. A draft's first one is left out then, and no ids pass unchanged.

    Otherwise a word is translated once the draft's next token begins another or the draft has ended, for a
    word that grows may be segmented anew. What the draft tokens of a word became is remembered, for the 4096
    latest. Of a target that has tokens across words the guess is wrong where it would say one.

    Added tokens end the translation, as does text that is not valid UTF-8 or that the target's tokenizer
    would not give back letter for letter. Nothing but tokens of the target's model and its end of sequence
    comes out. Meant for one thread at a time.
    """

    def __init__(
        self,
        draft_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        draft_eos_id: int,
        target_eos_id: int,
        target_prompt: Sequence[int],
    ) -> None:
        """`target_prompt` are the token ids with which the target's prompt ends."""
        context = _WORD_BEGINS.split(target_tokenizer.decode(target_prompt))[-1]
        self._draft = _Vocabulary(draft_tokenizer, _DRAFT_PROMPT)
        self._target = _Vocabulary(target_tokenizer, context)
        self._draft_eos_id, self._target_eos_id = draft_eos_id, target_eos_id
        self._drops_space = not context[-1:].strip()
        self.unchanged = self._draft.ids == self._target.ids and not self._drops_space
        """Whether ids pass as they are."""
        if self.unchanged:
            return
        texts = {i: self._draft.text([i]) for i in self._draft.ids.values()}
        self._begin_word = {i for i, text in texts.items() if text[:1] == " "}
        # The last byte of a wide space would look like a letter.
        self._end_word = {
            i for i, text in texts.items() if text and not text[-1].isspace() and text[-1] != _BROKEN
        }
        self._known = lru_cache(_KNOWN)(self._translate)

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
        said, likely, begin = list(tokens[:end]), list(probs[:end]), end
        if not self.unchanged:
            said, likely, begin = [], [], 0
            for run in self._runs(tokens[:end], ended):
                word = self._known(run, self._drops_space and begin == 0)
                if not word:
                    break
                said += word
                likely += [math.prod(probs[begin : begin + len(run)]), *[1.0] * (len(word) - 1)]
                begin += len(run)
        if ended and begin == end:
            said.append(self._target_eos_id)
            likely.append(probs[end])
        return tuple(said), tuple(likely)

    def _runs(self, tokens: Sequence[int], ended: bool) -> Iterator[tuple[int, ...]]:
        """Tokens of whole words; what may still grow is left out."""
        begin = 0
        for i in range(1, len(tokens)):
            if tokens[i] in self._begin_word and tokens[i - 1] in self._end_word:
                yield tuple(tokens[begin:i])
                begin = i
        if ended and begin < len(tokens):
            yield tuple(tokens[begin:])

    def _translate(self, run: tuple[int, ...], drops_space: bool) -> tuple[int, ...]:
        """Return the target tokens of whole words; none where the target cannot write them."""
        text = self._draft.text(run)
        text = text.removeprefix(" ") if drops_space else text
        tokens = self._target.tokens(text)
        if _BROKEN in text or self._target.text(tokens) != text or any(i not in self._target for i in tokens):
            return ()
        return tuple(tokens)


class _Vocabulary:
    """A tokenizer without its added tokens, so that no text can become one, behind the prompt's last word:
    what a tokenizer adds to a text's beginning, or drops there, is before it."""

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
        """Other text where its beginning became one token with what is before it."""
        return self._tokenizer.encode(self._before + text).ids[len(self._context) :]
