"""A GGUF target writes the same tokens as llama.cpp for any drafts, and invalid files are refused."""

from __future__ import annotations

import ctypes
import logging
import random
import shutil
import struct
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from checkpoint_layouts import load_target
from refusals import refused
from scripted_answer import answered
from tiny_targets import TINY_FAMILIES, noise

from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.cli import main
from crossspec_ros.engine.llama_cpp import llama_runner
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models import gguf
from crossspec_ros.models.base import FRAMES
from crossspec_ros.models.footprint import estimate
from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.llama_calls import FLASH_ATTN_DISABLED, Batch
from crossspec_ros.models.llama_library import MAX_TOKENS, LlamaModel, LlamaProjector
from crossspec_ros.models.placement import available, has_llama
from crossspec_ros.models.registry import target_spec
from crossspec_ros.paths import share_dir

pytest.importorskip("gguf")
from gguf_pairs import write_pair, write_projector

pytestmark = pytest.mark.skipif(not has_llama(), reason="llama.cpp is not installed")
QUESTION = "What are the key elements in this scene?"
MARK = gguf.QUESTION
LIMIT = 40
TYPED = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return TINY_FAMILIES["qwen3_vl"].checkpoint(tmp_path_factory.mktemp("qwen") / "target")


@pytest.fixture(scope="module")
def file(checkpoint, tmp_path_factory):
    return write_pair(checkpoint, tmp_path_factory.mktemp("pair"))


def frames(target, count=8):
    return noise(count, target.spec.image_size, 40, seed=count)


def own_answer(target, seen, limit):
    """Return greedy tokens by llama.cpp's own calls, with one token per pass."""
    library, (before, behind) = target.llama.library, target.architecture.prompt
    content = before + library.mtmd_default_marker().decode() * len(seen) + behind.replace(MARK, QUESTION)
    shape = library.llama_context_default_params()
    shape.n_ctx = shape.n_batch = shape.n_ubatch = 2048
    shape.n_threads = shape.n_threads_batch = 1
    shape.flash_attn_type = FLASH_ATTN_DISABLED
    shape.type_k = shape.type_v = 0
    context = library.llama_init_from_model(target.llama.handle, shape)
    projector, passed = target._projector, ctypes.c_int32()
    with projector.chunks(content.encode(), list(seen), True) as chunks:
        assert not library.mtmd_helper_eval_chunks(
            projector.handle, context, chunks, 0, 0, 2048, True, ctypes.byref(passed)
        )
    library.llama_batch_get_one.restype = Batch
    tokens = []
    while len(tokens) < limit and not (tokens and tokens[-1] in target.spec.eos_ids):
        logits = np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (target.vocabulary,))
        tokens.append(int(logits.argmax()))
        batch = library.llama_batch_get_one((ctypes.c_int32 * 1)(tokens[-1]), 1)
        assert library.llama_decode(context, batch) == 0
    library.llama_free(context)
    return tokens


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q4_0"])
def test_answers_equal_llama_cpp(checkpoint, tmp_path, kind):
    target, rng = load_target(write_pair(checkpoint, tmp_path, kind)), random.Random(3)
    assert target.spec == target_spec(tmp_path / f"tiny-{kind}.gguf")
    runner = llama_runner(target, "gguf", 1)
    assert runner.branches == (kind == "F32")
    with closing(LocalEngine(target, runner=runner)) as engine, torch.inference_mode():
        for count in (8, 5):
            seen = frames(target, count)
            alone = answered(engine, seen, lambda tokens: DraftTree(), LIMIT, 0, QUESTION)[:LIMIT]
            assert len(set(alone)) > 3
            if kind == "F32":
                # With fewer bits, llama.cpp sums its passes over one row in another order.
                assert own_answer(target, seen, LIMIT) == [*alone]

            def draft(tokens, alone=alone):
                right = [*alone[len(tokens) : len(tokens) + rng.randrange(6)]]
                wrong = [rng.randrange(300) for _ in range(3)]
                chains = [right, right[:1] + wrong] if runner.branches else [right + wrong]
                return DraftTree.merged([DraftTree.chain(ids, [0.5] * len(ids), "guess") for ids in chains])

            for ahead in (0, 3, count):
                assert answered(engine, seen, draft, LIMIT, ahead, QUESTION)[:LIMIT] == alone


@torch.inference_mode()
def test_gguf_inputs_equal_checkpoints(checkpoint, file):
    target, own = load_target(file), load_target(checkpoint)
    assert np.array_equal(target.words((5, 7, 300)).embeds, own.words((5, 7, 300)).embeds.numpy())
    assert target.prompt_ids(QUESTION)[1] == own.prompt_ids(QUESTION)[1][1:]
    assert target.tokenizer.decode(own.tokenizer.encode(QUESTION).ids) == QUESTION
    (unit,), ((theirs, _),) = target.encode(frames(target, 2)), own.encode(frames(target, 2))
    made = target.unit(unit, 0)
    assert np.allclose(made.embeds[1:-1], theirs.embeds, atol=0.05)
    assert np.allclose(made.layers[:, 1:-1], theirs.layers, atol=0.05)
    assert made.span == 2 + theirs.span and len(made) == len(theirs.embeds) + 2
    assert theirs.embeds.abs().max() > 2
    target.llama.close()
    with pytest.raises(RuntimeError):
        target.encode(frames(target, 2))


def test_command_captions(tmp_path, capsys):
    file = write_pair(share_dir() / "models" / "tiny_qwen3_vl", tmp_path / "pair", "Q8_0")
    drive, captions = str(share_dir() / "rosbags" / "synthetic_drive"), []
    for draft in ("none", ""):
        out = tmp_path / f"{draft}.json"
        options = ["--draft", draft] if draft else []
        assert main(["caption", drive, "--target", str(file), "--json", str(out), *options]) == 0
        captions.append([line for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()])
    assert captions[0] == captions[1] and len(captions[0]) == 9
    assert main(["doctor", "--target", str(file), "--draft", "none"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("gguf on cpu by llama.cpp") == 1 and "recommended: --device cpu" in printed


def test_chat_templates(checkpoint, file, tmp_path):
    typed = GgufArchitecture.of_folder(write_pair(checkpoint, tmp_path / "typed", template=TYPED))
    assert typed.prompt == GgufArchitecture.of_folder(file).prompt
    for template, sentence in (("", "has no chat template"), ("{{ 1 // 0 }}", "does not take a question")):
        with pytest.raises(InputError, match=sentence):
            GgufArchitecture.of_folder(write_pair(checkpoint, tmp_path / "other", template=template))


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("harm", "problem"),
    [(lambda file, projector: projector.unlink(), "projector"),
     (lambda file, projector: shutil.copy(projector, file.parent / "mmproj-2.gguf"), "mmproj-2.gguf, mmproj"),
     (lambda file, projector: (file.parent / "mmproj-2.gguf").touch(), "mmproj-2.gguf' is damaged"),
     (lambda file, projector: cut(file), "cannot load"),
     (lambda file, projector: cut(projector), "damaged"),
     (lambda file, projector: projector.write_bytes(file.read_bytes()), "not of this model"),
     (lambda file, projector: file.unlink(), "there is no file")],
)  # fmt: skip
def test_invalid_pairs_are_refused(file, tmp_path, harm, problem):
    mine, projector = tmp_path / file.name, tmp_path / "mmproj-tiny.gguf"
    for made in (mine, projector):
        made.write_bytes((file.parent / made.name).read_bytes())
    harm(mine, projector)
    with pytest.raises(InputError, match=problem):
        GgufArchitecture.of_folder(mine)


def test_most_precise_projector_that_fits_is_used(checkpoint, tmp_path, monkeypatch, caplog):
    """Float16 precedes bfloat16; without enough memory for any projector, the smallest is used.

    Free memory has no effect, and only the model and the chosen projector are loaded, once.
    """
    caplog.set_level(logging.INFO)
    file, tiny = write_pair(checkpoint, tmp_path), tmp_path / "mmproj-tiny.gguf"
    for kind in ("Q8_0", "BF16", "F16"):
        write_projector(load_target(checkpoint), tmp_path / f"mmproj-{kind}.gguf", kind)
    architecture = GgufArchitecture.of_folder(file)
    assert architecture.projector == tiny
    assert f"using projector '{tiny}', the most precise of 4 that fits the memory" in caplog.text
    assumed = replace(architecture, spec=replace(architecture.spec, frame_tokens=FRAMES * MAX_TOKENS))
    rest = estimate(available(target=file.name), assumed, None).target.total - tiny.stat().st_size
    loaded = []
    for kind in (LlamaModel, LlamaProjector):
        monkeypatch.setattr(
            gguf, kind.__name__, lambda path, other, kind=kind: loaded.append(path) or kind(path, other)
        )
    for name in ("F16", "BF16", "Q8_0"):
        projector = tmp_path / f"mmproj-{name}.gguf"
        total = rest + projector.stat().st_size if name != "Q8_0" else 0
        monkeypatch.setattr(gguf, "memory", lambda device, total=total: (0, total))
        gguf._read.cache_clear()
        caplog.clear()
        loaded.clear()
        assert GgufArchitecture.of_folder(file).projector == projector
        assert loaded == [file, projector]
        assert ("none of 2 projectors fits" in caplog.text) == (not total)
        levels = [one.levelno for one in caplog.records if one.name == gguf.__name__]
        assert levels == [logging.INFO if total else logging.WARNING]
        target = load_target(file)
        assert target.architecture.projector == projector
        assert np.isfinite(target.encode(frames(target, 2))[0][1].inputs).all()
        projector.unlink()


def test_projector_of_another_width_is_refused(checkpoint, file, tmp_path):
    """The sentence has both widths, unless the width in the header is CLIP's own."""
    wider = load_target(TINY_FAMILIES["qwen3_vl"].checkpoint(tmp_path / "wider", hidden_size=96))
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    projector = tmp_path / "mmproj-wider.gguf"
    write_projector(wider, projector)
    with refused("projector-of-another-width"):
        GgufArchitecture.of_folder(copy)
    own, of_clip = (b"clip.vision.projection_dim" + struct.pack("<II", 4, width) for width in (96, 77))
    assert projector.read_bytes().count(own) == 1
    projector.write_bytes(projector.read_bytes().replace(own, of_clip))
    with pytest.raises(InputError, match="is damaged, or not of this model"):
        GgufArchitecture.of_folder(copy)


def test_scaled_embeddings_are_refused(file, monkeypatch):
    own = gguf.read_embeddings
    monkeypatch.setattr(gguf, "read_embeddings", lambda file: lambda ids: 1.5 * own(file)(ids))
    gguf._read.cache_clear()
    with pytest.raises(InputError, match="embeddings"):
        GgufArchitecture.of_folder(file)


ALONE = """
import sys
import numpy as np, psutil
from crossspec_ros.captioning.load_decoder import load_decoder
from crossspec_ros.captioning.caption import Options
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

values = {"target": sys.argv[1], "draft": "none", "memory": "none", "question": "Describe the scene."}
decoder = load_decoder(CaptionerSettings.of(values), is_live=True)
frames, stamps = np.load(sys.argv[2]), tuple(i * 125_000_000 for i in range(8))
for frame, stamp in zip(frames[:7], stamps):
    decoder.stream_frame(0, frame, stamp).result(20)
window = Window(0, 0, 10**9, frames[:0], frames, stamps)
caption = decoder.caption(window, Options(values["question"]), Trace())
decoder.close()
print(len(caption.token_ids) > 5, "torch" in sys.modules, psutil.Process().memory_info().rss < 400e6)
"""


def test_gguf_captioner_needs_no_torch(file, tmp_path):
    """It needs less than 400 MB."""
    np.save(tmp_path / "frames.npy", noise(8, 32, 40))
    command = [sys.executable, "-c", ALONE, str(file), str(tmp_path / "frames.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "False", "True"]


def test_digest_covers_both_files(file, tmp_path):
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    projector = tmp_path / "mmproj-other.gguf"
    projector.write_bytes((file.parent / "mmproj-tiny.gguf").read_bytes())
    before = models_digest([copy])
    (tmp_path / "other.gguf").touch()
    assert models_digest([copy]) == before
    content = bytearray(projector.read_bytes())
    content[-1] ^= 1
    projector.write_bytes(content)
    assert models_digest([copy]) != before
