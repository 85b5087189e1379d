"""JSON schemas that an answer follows: which tokens may come next says llguidance, the target which of them.

So an answer is what the target alone writes under the same schema: drafts are verified as ever, and those
that no answer may have are not put to it. JSON is written as Python writes it, with a space behind commas and
colons, for nothing else is told by the spaces of an answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from crossspec_ros.engine.session import Engine
    from crossspec_ros.models.base import VideoTarget

MOST_SCHEMA = 65_536
"""Characters of a schema."""
_SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarCompiler:
    """Compiles schemas for the tokens of an engine's target, which it reads once."""

    def __init__(self, target: VideoTarget, engine: Engine) -> None:
        self._target, self._engine = target, engine
        self._tokens: Any = None

    def compiled(self, schema: str) -> GrammarState | None:
        """Grammar before an answer's first token, of a schema in JSON; none of an empty text.

        InputError for what is no schema, or not supported.
        """
        if not schema:
            return None
        if not self._engine.masks:
            raise InputError(
                "a schema needs the logits of the target, which stay on its server: name a target on this "
                "machine, or leave schema empty"
            )
        eos_ids = self._target.spec.eos_ids
        text = checked_schema(schema)
        try:
            from llguidance import LLMatcher, LLTokenizer
        except ImportError:
            raise InputError(
                "a schema needs the package llguidance: install it with pip install llguidance"
            ) from None
        if self._tokens is None:
            from tokenizers import Tokenizer

            whole = Tokenizer.from_str(self._target.tokenizer.to_str())
            whole.no_padding()
            whole.no_truncation()
            self._tokens = LLTokenizer(whole.to_str(), eos_token=list(eos_ids))
        matcher = LLMatcher(
            self._tokens, LLMatcher.grammar_from_json_schema(text, overrides=_SPACES), log_level=0
        )
        if matcher.is_error():
            raise InputError(f"the schema is not taken ({_reason(matcher)}): correct it, or write it simpler")
        return GrammarState(text, matcher, frozenset(eos_ids), self._tokens.vocab_size)


def read_schema(given: str) -> str:
    """Schema of a parameter, which is JSON or the path of a file with it, without spaces; empty where nothing
    is given. Raises InputError as `checked_schema`, and for a file that cannot be read."""
    if not given.strip() or given.lstrip().startswith("{"):
        return checked_schema(given) if given.strip() else ""
    try:
        with open(given, encoding="utf-8") as file:
            text = file.read(MOST_SCHEMA + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(
            f"the schema '{given[:200]}' cannot be read ({reason}): name a file with JSON, or give the JSON"
        ) from None
    return checked_schema(text)


def checked_schema(schema: str) -> str:
    """The same JSON without spaces; InputError for what is none, or no schema."""
    if len(schema) > MOST_SCHEMA:
        raise InputError(
            f"the schema has {len(schema)} characters, but at most {MOST_SCHEMA} are taken: shorten it"
        )
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the schema is no JSON ({error}): correct it") from None
    if not isinstance(found, dict) or not found:
        raise InputError(
            "the schema names no type: write an object of JSON schema, as in "
            '{"type": "object", "properties": {"person": {"type": "boolean"}}, "required": ["person"]}'
        )
    return json.dumps(found, separators=(",", ":"))


def _reason(matcher: Any) -> str:
    return str(matcher.get_error()).strip().partition("\n")[0][:300]


class GrammarState:
    """Place of an answer in its schema, behind the tokens taken so far; for one thread at a time. Each answer
    has a copy."""

    def __init__(self, schema: str, matcher: Any, eos_ids: frozenset[int], vocabulary: int) -> None:
        self.schema = schema
        self._matcher, self._eos_ids, self._vocabulary = matcher, eos_ids, vocabulary
        self.is_over = False
        """Nothing follows: the sequence has ended."""

    def copy(self) -> GrammarState:
        """The same place, to go on from apart."""
        return GrammarState(self.schema, self._matcher.deep_copy(), self._eos_ids, self._vocabulary)

    def allowed(self) -> np.ndarray:
        """(tokens,) bool: tokens that may come next. Beyond them there is none."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(bool)

    def forced(self) -> tuple[int, ...]:
        """Tokens in which any answer goes on from here, written the usual way."""
        return () if self.is_over else tuple(self._matcher.compute_ff_tokens())

    def take(self, *tokens: int) -> None:
        """Go on behind these tokens, which may come next; with an end of sequence the answer is over."""
        self.is_over |= bool(tokens) and tokens[-1] in self._eos_ids
        # The library takes an end of sequence in some states alone.
        self._matcher.consume_tokens([token for token in tokens if token not in self._eos_ids])
        self._check()

    def pruned(self, tree: DraftTree) -> DraftTree:
        """The tree without what no answer may have; an end of sequence may go, which a pass adds itself."""
        kept: set[int] = set()
        inner = set(tree.parents)
        for leaf in range(len(tree)):
            if leaf in inner:
                continue
            path = [leaf]
            while (parent := tree.parents[path[-1]]) != ROOT:
                path.append(parent)
            path.reverse()
            kept.update(path[: self._matcher.validate_tokens([tree.token_ids[node] for node in path])])
        return tree if len(kept) == len(tree) else tree.of(sorted(kept))

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InputError(f"the schema cannot be followed further ({_reason(self._matcher)}): simplify it")
