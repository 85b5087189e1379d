"""Small sound files that are no recordings: what nodes keep, are told, and take their models from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.paths import share_dir

if TYPE_CHECKING:
    from crossspec_ros.models.pair import ModelPair

IDENTITY = {"recording": "a digest"}
"""What stored drafts are of."""
TINY = share_dir() / "models" / "tiny"


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
    memory.save(path, "a vocabulary")


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
    from crossspec_ros.drafting.heads.eagle import Eagle
    from crossspec_ros.drafting.heads.head import Sizes
    from crossspec_ros.drafting.heads.speculators_format import save_speculators

    head = Eagle(Sizes.of(tiny_pair().target, None), version=3)
    save_speculators(head, path, "some/target", "VideoLlavaForConditionalGeneration")


def _medusa(path: Path) -> None:
    from crossspec_ros.drafting.heads.head import Sizes
    from crossspec_ros.drafting.heads.medusa import Medusa, save_medusa

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


def _drafts(path: Path) -> None:
    from crossspec_ros.drafting.draft_model import Said, digest
    from crossspec_ros.drafting.stored_draft import save_drafts
    from crossspec_ros.models.registry import draft_architecture

    width = draft_architecture(TINY / "draft").sizes.width
    said = [Said((5, 6, 7), (0.5, 0.9, 0.8), np.zeros(width, np.float32)) for _ in range(2)]
    images = [digest(np.full((2, 2, 3), i, np.uint8)) for i in range(2)]
    save_drafts(path, dict(zip(images, said, strict=True)), IDENTITY)


OWN: dict[str, tuple[str, Callable[[Path], None]]] = {
    "caption memory": ("memory.json", _memory),
    "golden": ("windows.json", _golden),
    "parameters": ("a.yaml", _parameters),
    "config": ("config.json", _config),
    "tokenizer": ("tokenizer.json", _tokenizer),
    "tokenizer.model": ("tokenizer", _sentencepiece),
    "tokens of robots": ("tokens.txt", _tokens),
}
"""By kind, as `RECORDINGS`."""
TORCH: dict[str, tuple[str, Callable[[Path], None]]] = {
    "draft head": ("head", _head),
    "weights": ("pytorch_model.bin", _weights),
    "weights, safetensors": ("model.safetensors", _safetensors),
    "weights, shards": ("model", _shards),
    "EAGLE-3 head": ("head", _eagle3),
    "Medusa heads": ("head", _medusa),
    "adapter": ("adapter", _adapter),
    "hand-off": ("handoff", _handoff),
    "stored drafts": ("drafts.safetensors", _drafts),
}
"""Likewise, of those whose reader has torch. The memory of one without it tells more of the others."""
