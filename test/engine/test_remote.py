"""What a robot takes of a target's server, whose link is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers

from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.remote import RemoteEngine, RemoteSession
from crossspec_ros.engine.remote_target import RemoteTarget
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import captions_pb2 as wire

ADDRESS = Address("grpc://127.0.0.1:1", "robot")


class Quiet(Link):
    """Is up, and says nothing."""

    def _keep(self) -> None:
        self._began(wire.Welcome())


@pytest.fixture
def session() -> Iterator[RemoteSession]:
    """One that was asked for 8 tokens, in its first step."""
    engine = RemoteEngine(ADDRESS, 30.0, 5.0, Quiet)
    session = engine.open(1, Trace())
    session.fit([np.zeros((8, 8, 3), np.uint8)], [1])
    session.ask("What?", Trace(), 8)
    yield session
    engine.close()


def take(session: RemoteSession, *token_ids: int, ended: bool = False) -> None:
    piece = wire.Piece(number=session._answer, token_ids=token_ids, ended=ended)
    session._engine._take(wire.Down(session=session.number, piece=piece))


@pytest.mark.parametrize("unsound", [(), tuple(range(7))])
def test_a_piece_of_no_tokens_or_of_too_many_fails_the_answer(
    session: RemoteSession, unsound: tuple[int, ...]
) -> None:
    step = session.step(DraftTree())
    take(session, 5, 6)
    assert step.result(0).tokens == (5, 6)
    step = session.step(DraftTree())
    take(session, *unsound)
    with pytest.raises(LinkError, match=f"sent {len(unsound)} tokens as a piece"):
        step.result(0)


def test_an_answer_ends_with_all_its_tokens_or_none(session: RemoteSession) -> None:
    step = session.step(DraftTree())
    take(session, *range(8))
    assert len(step.result(0).tokens) == 8
    session.ask("And?", Trace(), 8)
    step = session.step(DraftTree())
    take(session, ended=True)
    assert step.result(0).ended


def test_what_comes_behind_the_end_of_an_answer_is_not_kept(session: RemoteSession) -> None:
    trace = Trace()
    session.ask("And?", trace, 8)
    step = session.step(DraftTree())
    take(session, 5, ended=True)
    for _ in range(100):
        take(session, 5)
    assert step.result(0).ended and not session._pieces and len(trace.spans) == 1


def words(*known: str) -> Tokenizer:
    return Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="x"))


def growing() -> Tokenizer:
    grown = words("x")
    grown.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 64)] * 4)
    return grown


def panicking() -> str:
    document = json.loads((share_dir() / "models" / "tiny" / "target" / "tokenizer.json").read_text())
    document["model"]["continuing_subword_prefix"] = "x" * 30
    return json.dumps(document)


def test_a_tokenizer_that_pads_does_so_no_more() -> None:
    padded = words("x")
    padded.enable_padding(length=100_000)
    assert len(RemoteTarget("grpc://h:1", wire.Welcome(tokenizer=padded.to_str())).prompt_ids("x")[1]) == 1


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [("{", "Expecting property name"), (growing().to_str(), "longer texts"),
     (panicking(), "range"),
     (words("x", "w" * 5000).to_str(), "a token of 5000 characters")],
)  # fmt: skip
def test_a_tokenizer_that_makes_much_of_little_is_not_taken(sent: str, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"grpc://h:1 sends no tokenizer \(.*{sentence}"):
        RemoteTarget("grpc://h:1", wire.Welcome(tokenizer=sent))
