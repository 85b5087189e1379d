"""Structured answers: masks along a tree, refused schemas, and captions in JSON."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.drafting.proposer import Context, make_proposers
from crossspec_ros.engine import json_grammar as module
from crossspec_ros.engine.accept import accept_tokens
from crossspec_ros.engine.json_grammar import GrammarCompiler, check_schema, read_schema
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.trace import Trace

llguidance = pytest.importorskip("llguidance")

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "vehicle": {"enum": ["car", "van", "bus"]},
            "person": {"type": "boolean"},
            "words": {"type": "string", "maxLength": 12},
        },
        "required": ["vehicle", "person", "words"],
        "additionalProperties": False,
    }
)
ANSWER = '{"vehicle": "van", "person": true, "words": "a"}'


def compiled(pair, schema, supports_grammar=True):
    return GrammarCompiler(pair.target, SimpleNamespace(supports_grammar=supports_grammar)).compiled(schema)


@pytest.fixture(scope="module")
def state(pair):
    found = compiled(pair, SCHEMA)
    assert found is not None
    return found


def ids(pair, text):
    return (*pair.target.tokenizer.encode(text, add_special_tokens=False).ids, pair.target.spec.eos_ids[0])


def test_grammar_allows_full_answer_then_nothing(pair, state):
    place = state.copy()
    for token in ids(pair, ANSWER):
        assert place.allowed()[token] and not place.is_over
        place.take(token)
    assert place.is_over and place.forced() == ()
    assert not state.is_over, "each answer has a copy"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_mask_and_forced_tokens_agree(state, seed):
    """Every allowed token has a continuation, and a forced token is the only allowed one."""
    rng, place = np.random.default_rng(seed), state.copy()
    chosen = []
    for _ in range(40):
        following = place.copy()
        for token in following.forced():
            assert following.allowed().nonzero()[0].tolist() == [token]
            following.take(token)
        chosen.append(int(rng.choice(place.allowed().nonzero()[0])))
        place.take(chosen[-1])
        if place.is_over:
            break
    ends = int(place.is_over)
    chain = DraftTree.chain(chosen, [1.0] * len(chosen), "test")
    assert len(state.pruned(chain)) >= len(chosen) - ends


def test_pruned_tree_keeps_possible_nodes(pair, state):
    right, wrong = ids(pair, ANSWER)[:-1], ids(pair, '{"vehicle": "cow", "person": true}')
    tree = DraftTree.merged(DraftTree.chain(one, [0.5] * len(one), "test") for one in (right, wrong))
    kept = state.pruned(tree)
    common = next(i for i, pair in enumerate(zip(right, wrong, strict=False)) if pair[0] != pair[1])
    assert kept.token_ids[: len(right)] == right
    assert len(kept) < len(tree) and set(kept.token_ids[len(right) :]) <= set(wrong[common:])
    assert state.pruned(kept) is kept and not len(state.pruned(DraftTree()))


def test_grammar_proposes_forced_tokens_and_choices(pair, state):
    (proposer,) = make_proposers(["grammar"])
    tree = proposer.propose(Context("?", grammar=state.copy()), 64, 1e-4)
    forced = state.forced()
    assert forced and tree.token_ids[: len(forced)] == forced and set(tree.probs[: len(forced)]) == {1.0}
    siblings = [i for i, parent in enumerate(tree.parents) if parent == len(forced) - 1]
    assert len(siblings) > 1 and sum(tree.probs[i] for i in siblings) == pytest.approx(1.0)
    assert state.pruned(tree) is tree
    assert len(proposer.propose(Context("?", grammar=state.copy()), 3, 1e-4)) == 3


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, lambda one: torch.as_tensor(one).bfloat16()])
def test_acceptance_obeys_and_advances_grammar(pair, state, make):
    """The likeliest allowed token is accepted, though other tokens are likelier."""
    words = ids(pair, ANSWER)
    tree, place = DraftTree.chain(words[:3], [1.0] * 3, "test"), state.copy()
    logits = np.zeros((4, 600), np.float32)
    logits[:, 599] = 9  # not a token of the tokenizer
    logits[:, 70] = 8  # never allowed here
    for row, token in enumerate(words[:4]):
        logits[row, token] = 4
    assert accept_tokens(tree, make(logits), None, place) == ((0, 1, 2), words[3])
    assert place.allowed()[words[4]] and not place.allowed()[words[0]]


def test_samples_follow_target_within_grammar(pair, state):
    """Samples are allowed tokens, in the proportions of the target."""
    place = state.copy()
    for token in ids(pair, '{"vehicle": "')[:-1]:
        place.take(token)
    rng = np.random.default_rng(0)
    logits = torch.as_tensor(rng.normal(size=(1, len(place.allowed()))).astype(np.float32))
    draw = Sampling(1.0, 1.0, 7).draws()
    drawn = [accept_tokens(DraftTree(), logits, draw, place.copy())[1] for _ in range(2000)]
    allowed = place.allowed().nonzero()[0]
    probs = logits[0, allowed].softmax(-1).numpy()
    counts = np.array([drawn.count(token) for token in allowed])
    assert counts.sum() == 2000
    assert ((counts - 2000 * probs) ** 2 / (2000 * probs)).sum() < 13.8 + 2 * len(allowed)


REFUSED = {
    "{bad": "schema-no-json",
    "[1]": "schema-list",
    "nothere.json": "schema-missing",
    '{"type": "array", "uniqueItems": true}': "schema-unsupported",
    '{"anyOf": [{"multipleOf": 101}, {"multipleOf": 1.01}]}': "schema-remainders",
    '{"$ref": "#"}': "schema-recursive",
    '{"const": NaN}': "schema-nan",
    '{"const": ' + "[" * 200 + "]" * 200 + "}": "schema-deep",
    '{"a": ' * 10_000: "schema-endless",
    '{"type": "string", "title": "' + "x" * module.MAX_SCHEMA + '"}': "schema-too-long",
}
OWN_TEXTS = "schema-list", "schema-missing", "schema-remainders", "schema-too-long"


@pytest.mark.parametrize("schema", REFUSED)
def test_bad_schema_is_refused(pair, schema):
    is_of_library = REFUSED[schema] not in OWN_TEXTS
    with refused(REFUSED[schema], library_text=is_of_library) as error:
        compiled(pair, read_schema(schema))
    assert len(str(error.value)) < 600


def test_schema_is_text_or_file(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(SCHEMA)
    assert read_schema(str(file)) == read_schema(SCHEMA) and read_schema("  ") == ""
    file.write_text("\ufeff[1]")
    with refused("schema-file-list"):
        read_schema(str(file))
    file.write_bytes(b"\xff\xfe")
    with refused("schema-file-no-text"):
        read_schema(str(file))


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        ({}, False),
        ({"additionalProperties": True}, True),
        ({"allOf": [{"properties": {"b": {"type": "boolean"}}}]}, True),
    ],
)
def test_schema_without_additional_properties_is_closed(pair, schema, is_open):
    """As in OpenAI's strict mode and xgrammar; JSON Schema itself would leave it open."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], **schema}
    begun = compiled(pair, json.dumps(schema))
    begun.take(*ids(pair, '{"a": true')[:-1])
    comma = ids(pair, '{"a": true, "')[len(ids(pair, '{"a": true')) - 1]
    assert begun.allowed()[comma] == is_open


def test_closing_reaches_only_inner_schemas():
    """Names of properties and constant values are not schemas."""
    inner = {"properties": {"additionalProperties": {"type": "object"}}}
    schema = {"type": "array", "items": {"anyOf": [inner, {"const": {"properties": 1}}]}}
    (closed, constant) = json.loads(check_schema(json.dumps(schema)))["items"]["anyOf"]
    assert closed == {**inner, "additionalProperties": False} and constant == {"const": {"properties": 1}}


def test_schema_needs_local_target_and_llguidance(pair, monkeypatch):
    assert compiled(pair, "", supports_grammar=False) is None
    with refused("schema-remote-target"):
        compiled(pair, SCHEMA, supports_grammar=False)
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with refused("llguidance-missing"):
        compiled(pair, SCHEMA)


def test_captions_and_answers_follow_schema(pair, windows):
    free = Options("Describe the scene.")
    with closing(speculative_decoder(pair)) as decoder:
        bound = replace(free, grammar=decoder.grammar(SCHEMA))
        plain, caption = (decoder.caption(windows[0], options, Trace()) for options in (free, bound))
        assert caption.is_json and not plain.is_json
        answer = json.loads(caption.text)
        assert list(answer) == ["vehicle", "person", "words"] and isinstance(answer["person"], bool)
        with closing(decoder.alone()) as alone:
            slow = alone.caption(windows[0], bound, Trace())
        assert slow.token_ids == caption.token_ids and slow.target_passes > 2 * caption.target_passes
        again = decoder.ask(bound, Trace())
        assert again.token_ids == caption.token_ids and again.target_passes < caption.target_passes
        assert again.accepted["memory"]
        assert decoder.ask(free, Trace()).token_ids == plain.token_ids
        assert not decoder.ask(replace(bound, max_new_tokens=5), Trace()).is_json, "it was truncated"
