"""JSON schemas of answers: llguidance computes the allowed next tokens, and the target chooses one of them.

An answer equals that of the target without drafting under the same schema. The policy removes impossible
draft tokens, and the target verifies the others as usual. JSON has a space after each comma and colon, as
in Python. Objects have no properties that their schema does not name, as in the strict mode of other servers.
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

MAX_SCHEMA = 65_536
"""Largest number of characters in a schema."""
MAX_REMAINDERS = 10_000
"""Largest number of remainders of `multipleOf`; for more, llguidance needs minutes and gigabytes."""
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMAS = ("items", "prefixItems", "additionalItems", "additionalProperties", "anyOf", "oneOf")
"""Keywords whose values contain schemas, by name or in a list."""
_COMBINING = {"allOf", "not", "if", "then", "else", "dependentSchemas", "unevaluatedProperties"}
_ALTERNATIVES = {"anyOf", "oneOf", "$ref"}
"""Keywords that give one object the properties of several schemas; alternatives only next to `properties`."""
_SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarCompiler:
    """Compiles schemas for the vocabulary of an engine's target."""

    def __init__(self, target: VideoTarget, engine: Engine) -> None:
        self._target, self._engine = target, engine

    def compiled(self, schema: str) -> GrammarState | None:
        """Return the grammar at the start of an answer, or None for an empty schema.

        Raises InputError if the schema is invalid or unsupported.
        """
        if not schema:
            return None
        if not self._engine.supports_grammar:
            raise InputError(
                "a schema needs the target's logits, but the target runs on a server: set target to a model "
                "on this machine, or leave schema empty"
            )
        text = check_schema(schema)
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
        # llguidance also compiles some schemas that no answer can satisfy.
        if not begun.copy().allowed().any():
            raise _refusal("no answer can satisfy it")
        return begun

    @cached_property
    def _tokens(self) -> Any:
        from llguidance import LLTokenizer
        from tokenizers import Tokenizer

        unlimited = Tokenizer.from_str(self._target.tokenizer.to_str())
        unlimited.no_padding()
        unlimited.no_truncation()
        return LLTokenizer(unlimited.to_str(), eos_token=list(self._target.spec.eos_ids))


def read_schema(value: str) -> str:
    """Return the schema for a parameter's value: JSON, the path of a JSON file, or nothing.

    Raises InputError as `check_schema` does, and if the file is unreadable.
    """
    value = value.strip()
    if not value or value[0] in '{["':
        return check_schema(value) if value else ""
    try:
        text = read_small(Path(value)).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(
            f"the schema '{value[:200]}' cannot be read ({reason}): set schema to JSON or to a JSON file"
        ) from None
    return check_schema(text)


def check_schema(schema: str) -> str:
    """Return the closed schema as JSON without spaces.

    Raises InputError if the schema is not an object or is too large. llguidance checks the keywords.
    """
    try:
        if len(schema) > MAX_SCHEMA:
            raise ValueError(f"it has more than {MAX_SCHEMA} characters")
        found = json.loads(schema)
        if not isinstance(found, dict) or not found:
            raise ValueError("it is not an object with keywords")
        if (remainders := _remainders(found)) > MAX_REMAINDERS:
            raise ValueError(
                f"its multipleOf has {remainders} remainders; at most {MAX_REMAINDERS} are allowed"
            )
        _close(found)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"the schema is invalid ({error or 'it is nested too deeply'}): use a JSON object such as "
            '{"type": "object", "properties": {"person": {"type": "boolean"}}, "required": ["person"]}'
        ) from None
    return json.dumps(found, separators=(",", ":"))


def _close(schema: dict[str, Any]) -> None:
    """Forbid unnamed properties in every schema that does not set `additionalProperties`.

    A schema that combines others stays open, because all of them describe the same object.
    """
    found = list(_subschemas(schema))
    if any(_COMBINING & one.keys() or ("properties" in one and _ALTERNATIVES & one.keys()) for one in found):
        return
    for one in found:
        if "properties" in one:
            one.setdefault("additionalProperties", False)


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas inside it; a property may have the name of a keyword."""
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
    """Return the product of all numerators of `multipleOf`: llguidance has one state for each remainder."""
    product = 1
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if name == "multipleOf" and isinstance(inner, int | float) and inner:
            product *= abs(Fraction(str(inner)).numerator)
        elif isinstance(inner, dict | list):
            product *= _remainders(inner)
    return product


class GrammarState:
    """Position of an answer in its schema after the tokens so far. Not thread-safe."""

    def __init__(self, schema: str, matcher: Any, eos_ids: Sequence[int], vocabulary: int) -> None:
        self.digest = hashlib.sha256(schema.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        """Digest of the schema; a part of the caption memory's key."""
        self._matcher, self._eos_ids, self._vocabulary = matcher, eos_ids, vocabulary
        self.is_over = False
        """Whether the answer has ended."""

    def copy(self) -> GrammarState:
        """Return an independent copy."""
        made = copy.copy(self)
        made._matcher = self._matcher.deep_copy()
        return made

    def allowed(self) -> np.ndarray:
        """Return (tokens,) bool: the allowed next tokens. Ids beyond its end are not allowed."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(bool)

    def forced(self) -> tuple[int, ...]:
        """Return the tokens that every answer has next."""
        return () if self.is_over else tuple(self._matcher.compute_ff_tokens())

    def take(self, *tokens: int) -> None:
        """Advance by these allowed tokens; an end of sequence ends the answer."""
        self.is_over |= bool(tokens) and tokens[-1] in self._eos_ids
        # llguidance accepts an end of sequence in some states only.
        self._matcher.consume_tokens([token for token in tokens if token not in self._eos_ids])
        self._check()

    def pruned(self, tree: DraftTree) -> DraftTree:
        """Return the tree without impossible nodes, and perhaps without ends of sequence.

        A pass adds an end of sequence as its bonus token.
        """
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
    return InputError(f"the schema is not supported ({line}): correct or simplify it")
