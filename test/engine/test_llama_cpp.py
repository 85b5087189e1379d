"""llama.cpp returns the target's logits, also for trees, and commits the accepted tokens."""

from __future__ import annotations

import ctypes
import errno
import random
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from crossspec_lab.world.phrases import QUESTION
from draft_trees import path_to, random_tree
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.load_decoder import load_decoder
from crossspec_ros.engine.llama_cpp import LlamaRunner, llama_runner
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.runner import Input
from crossspec_ros.engine.tree import ROOT, DraftTree, attention_mask
from crossspec_ros.errors import InputError
from crossspec_ros.models import gguf_file, llama_calls
from crossspec_ros.models.gguf_file import convert_model
from crossspec_ros.models.placement import has_llama
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.trace import Trace

pytestmark = pytest.mark.skipif(not has_llama(), reason="llama.cpp is not installed")


@pytest.fixture
def engine(pair):
    with closing(LocalEngine(pair.target, runner=llama_runner(pair.target, "float32", 1))) as made:
        yield made


@torch.inference_mode()
def test_llama_tree_logits_equal_torch(pair, engine):
    rng, target, runner = random.Random(5), pair.target, engine.runner
    words = target.tokenizer.get_vocab_size()
    own = ModelRunner(target.body, 700, False, head=target.logits)
    runner.warm_up(2)
    # Two windows are open.
    pairs = [(runner.take(), own.take()) for _ in range(2)]

    def read(runner, row, tokens, tree):
        length = row.length
        depths = [len(tokens) - 1 + depth for depth in tree.depths()]
        positions = torch.tensor([[*range(len(tokens)), *depths]]) + length
        embeds, mask = target.words(tokens + tree.token_ids).embeds, attention_mask(length, len(tokens), tree)
        [output] = runner.read([Input(row, embeds, positions, mask, None, len(tree) + 1)])
        return torch.as_tensor(output.logits)

    for turn in range(16):
        rows = pairs[turn % 2]
        tree = random_tree(rng, rng.randrange(24), words) if turn > 1 else DraftTree()
        tokens = tuple(rng.randrange(words) for _ in range(rng.choice([1, 1, 9])))
        found, expected = (read(who, row, tokens, tree) for who, row in zip((runner, own), rows, strict=True))
        assert torch.allclose(found, expected, atol=2e-3)
        path = path_to(tree, rng.randrange(ROOT, len(tree)))
        verified = rows[0].length - len(tree)
        for row in rows:
            row.keep(verified, [verified + one for one in path])
    runner.give_back(pairs[0][0])
    assert isinstance(runner, LlamaRunner) and pairs[0][0].length == 0 and len(runner.free) == 256 - 5
    further = [runner.take() for _ in range(4)]
    with pytest.raises(RuntimeError):
        runner.take()
    long = Input(further[0], torch.zeros(20_000, 1), torch.zeros(1, 1), np.ones((1, 1), bool))
    with pytest.raises(InputError):
        runner.read([long])


@pytest.mark.parametrize("kind", ["BF16", "Q8_0"])
@torch.inference_mode()
def test_llama_path_logits_are_equal_across_passes(pair, kind, caplog):
    rng, target = random.Random(3), pair.target
    words = target.tokenizer.get_vocab_size()
    runner, alone = (LlamaRunner(convert_model(target, kind), 600, 1, branches=False) for _ in range(2))
    assert "depend on drafts" not in caplog.text
    row, other, plain = runner.take(), runner.take(), alone.take()

    def read(runner, row, *tokens, logits=1):
        mask = attention_mask(row.length, len(tokens), DraftTree())
        positions = torch.arange(len(tokens))[None] + row.length
        read = Input(row, target.words(tokens).embeds, positions, mask, None, logits)
        return runner.read([read])[0].logits

    prompt = [rng.randrange(words) for _ in range(90)]
    read(alone, plain, *prompt)
    for begin, end in pairwise((0, 1, 17, 60, 90)):
        read(runner, row, *prompt[begin:end])
    for _ in range(12):
        read(runner, other, *(rng.randrange(words) for _ in range(5)))
        drafted = [rng.randrange(words) for _ in range(rng.randrange(1, 24))]
        logits = read(runner, row, *drafted, logits=len(drafted))
        accepted = rng.randrange(1, len(drafted) + 1)
        row.keep(row.length - len(drafted) + accepted)
        for token, expected in zip(drafted[:accepted], logits, strict=False):
            assert np.array_equal(read(alone, plain, token)[0], expected)
    runner.release()
    alone.release()


def test_captioner_runs_llama_by_parameters(windows, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = CaptionerSettings.of({"models.engine": "llama.cpp", "models.dtype": "int8", "memory": "none"})
    for _ in range(2):
        with closing(load_decoder(settings, is_live=True)) as decoder, closing(decoder.alone()) as alone:
            caption = decoder.caption(windows[0], Options(QUESTION), Trace())
            assert alone.caption(windows[0], Options(QUESTION), Trace()).token_ids == caption.token_ids
            assert str(decoder.pair.placement) == "int8 on cpu by llama.cpp"
        # The second decoder must find the file.
        monkeypatch.setattr(gguf_file, "write_gguf", None)
    (file,) = tmp_path.rglob("*.gguf")
    assert "Q8_0" in file.name


def test_full_disk_is_refused(pair, tmp_path, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gguf_file, "write_gguf", write)
    with pytest.raises(InputError, match="No space left"):
        llama_runner(pair.target, "float32", 1, "sha256 0")


@pytest.mark.parametrize(
    ("code", "harm"),
    [
        ("llama-cpp-without-function", ("_RESULTS", {ctypes.c_int: "llama_unknown"})),
        ("llama-cpp-with-other-structs", ("TYPE_F16", 2)),
    ],
)
def test_unusable_library_is_refused(monkeypatch, code, harm):
    monkeypatch.setattr(llama_calls, *harm)
    package, file = llama_calls.find_library()
    with refused(code, file=file, package=package):
        llama_calls.load_library.__wrapped__()


def test_package_without_its_library_is_skipped(monkeypatch, tmp_path):
    wheel = tmp_path / llama_calls._FILES[llama_calls.WHEEL]
    wheel.parent.mkdir()
    wheel.touch()
    monkeypatch.setattr(llama_calls, "installed_version", dict(llama_calls._FILES.keys()).get)
    found = SimpleNamespace(locate_file=tmp_path.joinpath)
    monkeypatch.setattr(llama_calls, "distribution", lambda package: found)
    assert llama_calls.find_library() == ("==".join(llama_calls.WHEEL), wheel)
