"""JSON schemas that an answer follows: which tokens may come next says llguidance, the target which of them.

So an answer is what the target alone writes under the same schema: drafts are verified as ever, and those
that no answer may have are not put to it. JSON is written as Python writes it, with a space behind commas and
colons, for nothing else is told by the spaces of an answer.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from crossspec_ros.engine.session import Engine
    from crossspec_ros.models.base import VideoTarget

MOST_SCHEMA = 65_536
"""Characters of a schema."""
MOST_STEPS = 10_000
"""Remainders that a schema's numbers may leave by `multipleOf`; more take minutes and gigabytes."""
_NAMED = re.compile(r"properties|patternProperties|\$defs|definitions|dependentSchemas")
"""Keywords whose values have schemas by names."""
_INNER = re.compile(
    "items|prefixItems|additionalItems|unevaluatedItems|contains|additionalProperties|propertyNames|"
    "unevaluatedProperties|anyOf|allOf|oneOf|not|if|then|else"
)
"""Keywords whose values are schemas, or lists of them."""
_OTHER = re.compile(
    r"type|enum|const|format|pattern|minLength|maxLength|minimum|maximum|exclusiveMinimum|exclusiveMaximum|"
    r"multipleOf|minItems|maxItems|uniqueItems|minContains|maxContains|minProperties|maxProperties|required|"
    r"dependentRequired|dependencies|contentEncoding|contentMediaType|contentSchema|title|description|"
    r"default|examples|deprecated|readOnly|writeOnly|\$schema|\$id|id|\$ref|\$anchor|\$comment|\$vocabulary"
)
"""All other keywords of JSON schema, from draft 4 to 2020-12."""
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
        try:
            matcher = LLMatcher(
                self._tokens, LLMatcher.grammar_from_json_schema(text, overrides=_SPACES), log_level=0
            )
            if matcher.is_error():
                raise ValueError(_reason(matcher))
            begun = GrammarState(text, matcher, frozenset(eos_ids), self._tokens.vocab_size)
            # Some that no answer can follow are compiled all the same.
            if not begun.copy().allowed().any():
                raise ValueError("no answer can follow it")
        except (ValueError, InputError) as error:
            raise InputError(f"the schema is not taken ({error}): correct it, or write it simpler") from None
        return begun


def read_schema(given: str) -> str:
    """Schema of a parameter, which is JSON or the path of a file with it, without spaces; empty where nothing
    is given. Raises InputError as `checked_schema`, and for a file that cannot be read."""
    if not given.strip():
        return ""
    if given.lstrip()[0] in '{["' or given.strip() in ("true", "false", "null") or given.strip().isdigit():
        return checked_schema(given)
    try:
        with open(given, encoding="utf-8-sig") as file:
            text = file.read(MOST_SCHEMA + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(
            f"the schema '{given[:200]}' cannot be read ({reason}): name a file with JSON, or give the JSON"
        ) from None
    try:
        return checked_schema(text)
    except InputError as error:
        raise InputError(f"in '{given[:200]}', {error}") from None


def checked_schema(schema: str) -> str:
    """The same JSON without spaces; InputError for what is none, or no schema, or has unknown keywords."""
    if len(schema) > MOST_SCHEMA:
        raise InputError(f"the schema has more than {MOST_SCHEMA} characters: shorten it")
    try:
        found = json.loads(schema, object_pairs_hook=_object, parse_constant=_constant)
        if isinstance(found, dict) and found:
            if (steps := _check_keywords(found)) > MOST_STEPS:
                raise InputError(
                    f"the schema's multipleOf make {steps} remainders, but at most {MOST_STEPS} are taken: "
                    f"choose smaller ones, or leave them out"
                )
            return json.dumps(found, separators=(",", ":"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"the schema is no JSON ({error or 'too deep'}): give the JSON, corrected") from None
    raise InputError(
        "the schema is no JSON object with keywords: write one, as in "
        '{"type": "object", "properties": {"person": {"type": "boolean"}}, "required": ["person"]}'
    )


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object of JSON; raises ValueError where a key is there twice, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{twice[:100]}' is there twice")
    return found


def _check_keywords(schema: Any) -> int:
    """Product of the numerators of all `multipleOf`: the library makes a state of each remainder.

    Raises InputError for a keyword that JSON schema does not have, which the library would ignore.
    """
    steps = 1
    for name, value in schema.items() if isinstance(schema, dict) else ():
        inner: list[Any] = []
        if _NAMED.fullmatch(name) and isinstance(value, dict):
            inner = list(value.values())
        elif _INNER.fullmatch(name):
            inner = value if isinstance(value, list) else [value]
        elif name == "multipleOf" and isinstance(value, int | float) and value:
            steps *= abs(Fraction(str(value)).numerator)
        elif not _OTHER.fullmatch(name):
            raise InputError(
                f"the schema has '{name[:100]}', which is no keyword of JSON schema: correct it, or leave it "
                f"out"
            )
        for each in inner:
            steps *= _check_keywords(each)
    return steps


def _reason(matcher: Any) -> str:
    return str(matcher.get_error()).strip().partition("\n")[0][:300]


class GrammarState:
    """Place of an answer in its schema, behind the tokens taken so far; for one thread at a time. Each answer
    has a copy."""

    def __init__(self, schema: str, matcher: Any, eos_ids: frozenset[int], vocabulary: int) -> None:
        self.digest = hashlib.sha256(schema.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        """Digest of the schema, by which captions are remembered."""
        self._matcher, self._eos_ids, self._vocabulary = matcher, eos_ids, vocabulary
        self.is_over = False
        """Nothing follows: the sequence has ended."""

    def copy(self) -> GrammarState:
        """The same place, to go on from apart."""
        made = copy.copy(self)
        made._matcher = self._matcher.deep_copy()
        return made

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
