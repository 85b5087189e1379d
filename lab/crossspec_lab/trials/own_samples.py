"""Small sound files that are no recordings, and what reads them: what nodes keep and take models from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from crossspec_ros.paths import share_dir, tiny_models

if TYPE_CHECKING:
    from crossspec_ros.models.pair import ModelPair

_VOCABULARY = "a vocabulary"
_IDS = 600
"""Token ids of the caption memory's model."""
_ROWS = 4000
"""Embeddings of a tokenizer's model, of which the tiny target has fewer."""
TINY = tiny_models()


@cache
def tiny_pair() -> ModelPair:
    """The tiny models, for which the samples are."""
    from crossspec_ros.models.loading import load_pair

    return load_pair(TINY)


def _memory(path: Path) -> None:
    from crossspec_ros.drafting.proposer import Context, PassResult
    from crossspec_ros.drafting.proposers.memory import CaptionMemory
    from crossspec_ros.engine.tree import DraftTree

    memory = CaptionMemory()
    for said in ((5, 6, 7, 8), (5, 6, 9, 8)):
        memory.observe(PassResult(Context("what?"), DraftTree(), (), said, True))
    memory.save(path, _VOCABULARY)


def _golden(path: Path) -> None:
    document = json.loads((share_dir() / "rosbags" / "synthetic_drive.golden" / "windows.json").read_text())
    path.write_text(json.dumps({**document, "windows": document["windows"][:2]}))


def _parameters(path: Path) -> None:
    shutil.copy(share_dir() / "config" / "replay.yaml", path)


def _head(path: Path) -> None:
    (source,) = (TINY / "heads").iterdir()
    shutil.copytree(source, path)


def _config(path: Path) -> None:
    shutil.copy(TINY / "target" / "config.json", path)


def _tokenizer(path: Path) -> None:
    shutil.copy(TINY / "target" / "tokenizer.json", path)


def _tokens(path: Path) -> None:
    path.write_text("# who may come\ncar_7 0123456789abcdef0123\ncar_8 0123456789abcdef0124\n")


def _safetensors(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.arange(9.0), "b": torch.ones(2, 3, dtype=torch.bfloat16)}, path)


def _weights(path: Path) -> None:
    import torch

    torch.save({"a": torch.arange(9.0), "b": torch.ones(2, 3, dtype=torch.bfloat16)}, path)


def _sentencepiece(path: Path) -> None:
    import sentencepiece

    path.mkdir()
    lines = ["a red car waits at the light", "a blue truck turns to the left"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path / "tokenizer"),
        model_type="bpe",
        vocab_size=320,
        byte_fallback=True,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    (path / "tokenizer.vocab").unlink()
    (path / "tokenizer_config.json").write_text(json.dumps({"legacy": True, "add_bos_token": True}))
    (path / "added_tokens.json").write_text("{}")


def _shards(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    path.mkdir()
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for name, file in zip("ab", files, strict=True):
        save_file({name: torch.arange(9.0)}, path / file)
    index = {"metadata": {"total_size": 72}, "weight_map": dict(zip("ab", files, strict=True))}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def _eagle3(path: Path) -> None:
    from crossspec_lab.heads.eagle import Eagle
    from crossspec_lab.heads.saved import save_speculators
    from crossspec_ros.drafting.heads.head import Sizes

    head = Eagle(Sizes.of(tiny_pair().target, None), version=3)
    save_speculators(head, path, "some/target", "VideoLlavaForConditionalGeneration")


def _medusa(path: Path) -> None:
    from crossspec_lab.heads.medusa import Medusa
    from crossspec_lab.heads.saved import save_medusa
    from crossspec_ros.drafting.heads.head import Sizes

    save_medusa(Medusa(Sizes.of(tiny_pair().target, None)), path)


def _adapter(path: Path) -> None:
    from crossspec_lab.heads.draft_lora import DraftLora
    from crossspec_ros.drafting.heads.head import Sizes
    from crossspec_ros.models.loading import load_pair

    # It changes the draft.
    pair = load_pair(TINY)
    assert pair.draft is not None
    DraftLora(Sizes.of(pair.target, pair.draft), pair.draft, "what?").save(path)


def _handoff(path: Path) -> None:
    from crossspec_lab.handoff.network import Handoff, save_handoff
    from crossspec_ros.drafting.heads.head import Sizes

    pair = tiny_pair()
    save_handoff(Handoff(Sizes.of(pair.target, pair.draft), 8, 17, 5, 17), path, {})


def _read_memory(path: Path) -> None:
    from crossspec_ros.drafting.memory_file import MemoryFile
    from crossspec_ros.drafting.proposers.memory import CaptionMemory

    MemoryFile(CaptionMemory(), path, _VOCABULARY, _IDS).close()


def _read_golden(path: Path) -> None:
    from crossspec_ros.regress.checks import junit
    from crossspec_ros.regress.golden import compare, read_golden
    from crossspec_ros.regress.page import Page

    golden = read_golden(path, _AnySetup())  # type: ignore[arg-type]
    checks = compare(golden, golden)
    junit("golden", checks)
    Page().html("golden", [], checks)


class _AnySetup:
    """Set-up of a golden whose recording is not here."""

    origin_ns = 0

    def check(self, path: Path, identity: object) -> None:
        """Every identity is right."""


def _read_parameters(path: Path) -> None:
    from crossspec_ros.captioning.config import read_config

    read_config(path)


def _read_config(path: Path) -> None:
    from crossspec_ros.models.config_files import read_config

    read_config(path, ["model_type"])


def _folder(path: Path) -> Path:
    """The checkpoint's: some samples are one of its files, some the folder itself."""
    return path if path.is_dir() else path.parent


def _read_tokenizer(path: Path) -> None:
    from crossspec_ros.models.text_tokenizer import load_tokenizer

    load_tokenizer(_folder(path), _ROWS)


def _read_tokens(path: Path) -> None:
    from crossspec_ros.serving.options import read_tokens

    read_tokens(path)


def _read_weights(path: Path) -> None:
    from crossspec_ros.models.checkpoint import read_tensors

    read_tensors(_folder(path))


def _read_head(path: Path) -> None:
    from crossspec_ros.drafting.heads.head_files import load_head

    load_head(path, tiny_pair().target, tiny_pair().draft)


def _read_adapter(path: Path) -> None:
    from crossspec_lab.heads.draft_lora import merge

    # The draft is changed for good.
    draft = deepcopy(tiny_pair().draft)
    assert draft is not None
    merge(draft, path)


def _read_handoff(path: Path) -> None:
    from crossspec_lab.handoff.network import load_handoff

    load_handoff(path, tiny_pair().target, tiny_pair().draft)


class Sample(NamedTuple):
    """A sound file or folder: its name, what writes it, and what reads it as the commands do."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], None]


OWN: dict[str, Sample] = {
    "caption memory": Sample("memory.json", _memory, _read_memory),
    "golden": Sample("windows.json", _golden, _read_golden),
    "parameters": Sample("a.yaml", _parameters, _read_parameters),
    "config": Sample("config.json", _config, _read_config),
    "tokenizer": Sample("tokenizer.json", _tokenizer, _read_tokenizer),
    "tokenizer.model": Sample("tokenizer", _sentencepiece, _read_tokenizer),
    "tokens of robots": Sample("tokens.txt", _tokens, _read_tokens),
    "draft head": Sample("head", _head, _read_head),
    "weights": Sample("pytorch_model.bin", _weights, _read_weights),
    "weights, safetensors": Sample("model.safetensors", _safetensors, _read_weights),
    "weights, shards": Sample("model", _shards, _read_weights),
    "EAGLE-3 head": Sample("head", _eagle3, _read_head),
    "Medusa heads": Sample("head", _medusa, _read_head),
    "adapter": Sample("adapter", _adapter, _read_adapter),
    "hand-off": Sample("handoff", _handoff, _read_handoff),
}
"""By kind."""
