"""JSON schemas of answers: llguidance decides which tokens may come next, and the target chooses one of them.

An answer is what the target alone writes under the same schema. Impossible draft tokens are removed, and the
others are verified as without a schema. JSON has a space behind each comma and colon, as Python writes it.
An object has the properties that its schema names and no others, as in the strict mode of other servers.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small

if TYPE_CHECKING:
    from crossspec_ros.engine.protocols import Engine
    from crossspec_ros.models.base import VideoTarget

MOST_SCHEMA = 65_536
"""Characters of a schema."""
MAX_REMAINDERS = 10_000
"""Remainders that the `multipleOf` of a schema may leave. More take llguidance minutes and gigabytes."""
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMAS = ("items", "prefixItems", "additionalItems", "additionalProperties", "anyOf", "oneOf")
"""Keywords whose values hold schemas."""
_COMBINING = {"allOf", "not", "if", "then", "else", "dependentSchemas", "unevaluatedProperties"}
_ALTERNATIVES = {"anyOf", "oneOf", "$ref"}
"""Keywords by which an object has the properties of several schemas; the latter only beside `properties`."""
_SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarCompiler:
    """Compiles schemas for the tokens of an engine's target, which it reads once."""

    def __init__(self, target: VideoTarget, engine: Engine) -> None:
        self._target, self._engine = target, engine

    def compiled(self, schema: str) -> GrammarState | None:
        """Return the grammar before an answer's first token, or None without a schema.

        Raises InputError for an invalid or unsupported schema.
        """
        if not schema:
            return None
        if not self._engine.masks:
            raise InputError(
                "a schema needs the logits of the target, which stay on its server: name a target on this "
                "machine, or leave schema empty"
            )
        text = checked_schema(schema)
        try:
            from llguidance import LLMatcher
        except ImportError:
            raise InputError(
                "a schema needs the package llguidance: install it with pip install llguidance"
            ) from None
        try:
            grammar = LLMatcher.grammar_from_json_schema(text, overrides=_SPACES)
        except ValueError as error:
            raise _refusal(str(error)) from None
        matcher = LLMatcher(self._tokens, grammar, log_level=0)
        begun = GrammarState(text, matcher, self._target.spec.eos_ids, self._tokens.vocab_size)
        # llguidance also compiles some schemas without any answer.
        if not begun.copy().allowed().any():
            raise _refusal("no answer can follow it")
        return begun

    @cached_property
    def _tokens(self) -> Any:
        from llguidance import LLTokenizer
        from tokenizers import Tokenizer

        unlimited = Tokenizer.from_str(self._target.tokenizer.to_str())
        unlimited.no_padding()
        unlimited.no_truncation()
        return LLTokenizer(unlimited.to_str(), eos_token=list(self._target.spec.eos_ids))


def read_schema(given: str) -> str:
    """Return the schema of a parameter, which is JSON, the path of a JSON file, or empty.

    Raises InputError as `checked_schema` does, and for an unreadable file.
    """
    given = given.strip()
    if not given or given[0] in '{["':
        return checked_schema(given) if given else ""
    try:
        text = read_small(Path(given)).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(
            f"the schema '{given[:200]}' cannot be read ({reason}): name a file with JSON, or give the JSON"
        ) from None
    return checked_schema(text)


def checked_schema(schema: str) -> str:
    """Return the closed schema as JSON without spaces; raise InputError if it is no object or too large.

    Keywords are left to llguidance, which names those that it does not support.
    """
    try:
        if len(schema) > MOST_SCHEMA:
            raise ValueError(f"more than {MOST_SCHEMA} characters")
        found = json.loads(schema)
        if not isinstance(found, dict) or not found:
            raise ValueError("no object with keywords")
        if (remainders := _remainders(found)) > MAX_REMAINDERS:
            raise ValueError(f"its multipleOf leave {remainders} remainders, of {MAX_REMAINDERS} at most")
        _close(found)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"the schema is not usable ({error or 'too deep'}): correct it to a JSON object such as "
            '{"type": "object", "properties": {"person": {"type": "boolean"}}, "required": ["person"]}'
        ) from None
    return json.dumps(found, separators=(",", ":"))


def _close(schema: dict[str, Any]) -> None:
    """Forbid properties without a name wherever `additionalProperties` is absent.

    A schema that combines others stays open: their names are properties of the same object.
    """
    found = list(_subschemas(schema))
    if any(_COMBINING & one.keys() or ("properties" in one and _ALTERNATIVES & one.keys()) for one in found):
        return
    for one in found:
        if "properties" in one:
            one.setdefault("additionalProperties", False)


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and the schemas in it; a property may have the name of a keyword."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword, value in schema.items():
        inner: Any = ()
        if keyword in _SCHEMAS_BY_NAME and isinstance(value, dict):
            inner = value.values()
        elif keyword in _SCHEMAS:
            inner = value if isinstance(value, list) else [value]
        for each in inner:
            yield from _subschemas(each)


def _remainders(value: Any) -> int:
    """Return the product of all numerators of `multipleOf`: llguidance makes a state of each remainder."""
    product = 1
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if name == "multipleOf" and isinstance(inner, int | float) and inner:
            product *= abs(Fraction(str(inner)).numerator)
        elif isinstance(inner, dict | list):
            product *= _remainders(inner)
    return product


class GrammarState:
    """Place of an answer in its schema, behind its tokens so far. Each answer has a copy, for one thread."""

    def __init__(self, schema: str, matcher: Any, eos_ids: Sequence[int], vocabulary: int) -> None:
        self.digest = hashlib.sha256(schema.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        """Digest of the schema, the caption memory's key."""
        self._matcher, self._eos_ids, self._vocabulary = matcher, eos_ids, vocabulary
        self.is_over = False
        """Whether the answer has ended."""

    def copy(self) -> GrammarState:
        """Return an independent copy of this place."""
        made = copy.copy(self)
        made._matcher = self._matcher.deep_copy()
        return made

    def allowed(self) -> np.ndarray:
        """Return (tokens,) bool: the tokens that may come next; any later id may not."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(bool)

    def forced(self) -> tuple[int, ...]:
        """Return the tokens with which every answer goes on from here."""
        return () if self.is_over else tuple(self._matcher.compute_ff_tokens())

    def take(self, *tokens: int) -> None:
        """Go on behind these allowed tokens; with an end of sequence the answer is over."""
        self.is_over |= bool(tokens) and tokens[-1] in self._eos_ids
        # llguidance accepts an end of sequence in some states only.
        self._matcher.consume_tokens([token for token in tokens if token not in self._eos_ids])
        self._check()

    def pruned(self, tree: DraftTree) -> DraftTree:
        """Return the tree without impossible nodes. An end of sequence may go too: a pass adds it itself."""
        kept: set[int] = set()
        for leaf in set(range(len(tree))) - set(tree.parents):
            path = tree.path(leaf)
            kept.update(path[: self._matcher.validate_tokens([tree.token_ids[node] for node in path])])
        return tree.of(sorted(kept))

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refusal(self._matcher.get_error())


def _refusal(reason: str) -> InputError:
    line = reason.strip().partition("\n")[0][:300]
    return InputError(f"the schema is not taken ({line}): correct it, or write it simpler")
