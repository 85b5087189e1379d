"""Digests of the contents of models, and of the sizes and times of their files."""

from __future__ import annotations

import hashlib
import os

from crossspec_ros.captioning.models_digest import files_digest, models_digest


def test_digest_covers_configs_and_weights(tmp_path):
    folders = [tmp_path / "models" / name for name in ("draft", "target")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(folder.name)
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "README.md").write_text("no part of it")
    parts = ["config.json", "draft", "model.safetensors", "weights", "config.json", "target"]
    text = "".join([*parts, "model.safetensors", "weights"])
    assert models_digest(folders) == f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def test_digest_covers_merges_without_a_tokenizer_json(tmp_path):
    def digest(text):
        (tmp_path / "merges.txt").write_text(text)
        return models_digest([tmp_path])

    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "vocab.json").write_text("{}")
    assert digest("a b") != digest("b a")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert digest("a b") == digest("b a")


def test_digest_of_files_changes_with_any_write(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    before, stat = files_digest(tmp_path), weights.stat()
    assert files_digest(tmp_path) == before
    weights.write_bytes(b"w3ights")
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert files_digest(tmp_path) != before
