"""Every target family answers as transformers does, on its tiny checkpoint of tiny_targets.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from tiny_targets import TINY_FAMILIES, noise
from transformers import AutoModelForImageTextToText

from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import TARGETS, target_architecture, target_spec
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QUESTIONS = ("What are the key elements in this scene?", "Is there anybody on the road?")
LIMIT = 24


def frames(count: int, height: int, width: int) -> np.ndarray:
    return noise(count, height, width, seed=count)


class Family:
    """A family's tiny checkpoint, and transformers' own answers."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.tiny = name, TINY_FAMILIES[name]
        self.folder = self.tiny.checkpoint(folder)
        self._said: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def generated(self, seen: np.ndarray, question: str) -> tuple[int, ...]:
        key = (seen.shape, question)
        if key not in self._said:
            self._said[key] = self.tiny.generated(self.folder, seen, question, LIMIT)
        return self._said[key]


@pytest.fixture(scope="module", params=TINY_FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(request.param, tmp_path_factory.mktemp(request.param) / "target")


def test_every_family_is_tested() -> None:
    assert set(TARGETS) == set(TINY_FAMILIES)


def test_answers_depend_on_what_is_seen(family: Family) -> None:
    seen = frames(8, 48, 80)
    answer = family.generated(seen, QUESTIONS[0])
    assert len(set(answer)) > 5
    assert answer != family.tiny.generated(family.folder, seen[::-1].copy(), QUESTIONS[0], LIMIT)


@pytest.mark.parametrize("place", [0, 1])
def test_any_of_several_end_tokens_ends_the_response(family: Family, tmp_path: Path, place: int) -> None:
    seen = frames(8, 48, 80)
    whole = family.generated(seen, QUESTIONS[0])
    ends = [whole[7], whole[7]]
    ends[place] = whole[3]
    folder = shutil.copytree(family.folder, tmp_path / "target")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends, "pad_token_id": 0}))
    known = target_architecture(folder)
    assert known.spec.eos_ids == tuple(ends)
    with closing(LocalEngine(known.model(known.load(Placement()), known.tokenizer()))) as engine:
        session = engine.open(0, Trace())
        session.fit(list(seen), list(range(8)))
        session.ask(QUESTIONS[0], Trace())
        step = session.step(DraftTree.chain(whole[:12], [0.5] * 12, "guess")).result(20)
        assert step.ended and step.tokens == whole[: min(whole.index(end) for end in ends) + 1]
        session.close()


def by_llama(target: VideoTarget) -> LocalEngine:
    pytest.importorskip("llama_cpp")
    library = import_module("crossspec_ros.engine.llama_cpp")
    return LocalEngine(target, runner=library.llama_runner(target, "float32", 1))


@pytest.mark.parametrize(("count", "height", "width"), [(8, 48, 80), (7, 80, 48), (1, 64, 64)])
@pytest.mark.parametrize("ahead", [0, 5, 8])
@pytest.mark.parametrize("engine_of", [LocalEngine, by_llama])
def test_the_answer_is_that_of_generate(
    family: Family,
    count: int,
    height: int,
    width: int,
    ahead: int,
    engine_of: Callable[[VideoTarget], LocalEngine],
) -> None:
    """Whatever is read ahead, and whatever is drafted."""
    known = target_architecture(family.folder)
    target, seen = known.model(known.load(Placement()), known.tokenizer()), frames(count, height, width)
    engine, random = engine_of(target), np.random.default_rng(ahead)
    session = engine.open(0, Trace())
    for i, frame in enumerate(seen[:ahead]):
        session.append(frame, i).result(20)
    session.fit(list(seen), list(range(count)))
    for question in QUESTIONS:
        wanted, answer, ended = family.generated(seen, question), tuple[int, ...](), False
        session.ask(question, Trace())
        while not ended and len(answer) < LIMIT:
            right = list(wanted[len(answer) : len(answer) + int(random.integers(0, 6))])
            wrong = random.integers(0, 50, 3).tolist()
            trees = [
                DraftTree.chain(tokens, [0.5] * len(tokens), "guess") for tokens in (right, right[:1] + wrong)
            ]
            step = session.step(DraftTree.merged(trees)).result(20)
            answer, ended = answer + step.tokens, step.ended
        assert answer[:LIMIT] == wanted
    session.close()
    engine.close()


def test_the_decoder_with_all_proposers_says_what_generate_says(family: Family) -> None:
    """The event draft is EventGPT's, whose words are translated into the target's."""
    pair, seen = load_pair(tiny_models(), target=str(family.folder)), frames(8, 48, 80)
    decoder = speculative_decoder(pair, max_new_tokens=LIMIT)
    images = np.random.default_rng(0).integers(0, 256, (pair.event_images, 64, 64, 3), np.uint8)
    try:
        for index in range(2):
            stamps = tuple(index * 10**9 + i * 125_000_000 for i in range(8))
            window = Window(index, index * 10**9, (index + 1) * 10**9, images, seen, stamps)
            caption = decoder.caption(window, QUESTIONS[0], Trace())
            assert caption.token_ids == family.generated(seen, QUESTIONS[0])
        # The memory has learned the first answer.
        assert caption.target_passes < len(caption.token_ids)
    finally:
        decoder.close()


HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3_vl": {"video_processor": {
        **HALF, "size": {"longest_edge": 8 * 48 * 64, "shortest_edge": 4096}, "fps": 2}},
    "llava_onevision": {"video_processor": {
        **HALF, "resample": 3, "size": {"height": 30, "width": 30, "longest_edge": None}}},
    "smolvlm": {"video_processor": {
        **HALF, "resample": 1, "size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 64},
        "video_sampling": {"video_size": {"longest_edge": 64}, "fps": 1, "max_frames": 64}}},
    "internvl": {
        "image_processor": {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
                            "size": {"height": 32, "width": 32}},
        # As transformers' defaults have it, and with them 3.5's.
        "video_processor": {"image_mean": [0.48, 0.46, 0.41], "size": {"height": 384, "width": 384}}},
    "video_llava": {"video_processor": {
        "size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}, "do_center_crop": True,
        "rescale_factor": 1 / 255}},
}  # fmt: skip
"""What processor_config.json holds once transformers 5 has saved it."""


def test_a_checkpoint_saved_again_is_the_same(family: Family, tmp_path: Path) -> None:
    """Settings of old files are then in processor_config.json, which comes first."""
    AutoModelForImageTextToText.from_pretrained(family.folder).save_pretrained(tmp_path)
    shutil.copy(family.folder / "tokenizer.json", tmp_path)
    (tmp_path / "processor_config.json").write_text(json.dumps(SETTINGS[family.name]))
    for old in ("video_preprocessor_config.json", "preprocessor_config.json"):
        (tmp_path / old).write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3], "size": 7}))
    known, old = target_architecture(tmp_path), target_architecture(family.folder)
    assert known.spec == old.spec
    loaded, before = (one.load(Placement()).state_dict() for one in (known, old))
    assert all(torch.equal(loaded[name], tensor) for name, tensor in before.items())
    (tmp_path / "processor_config.json").write_text(json.dumps({"processor_class": "Any"}))
    codes = {"internvl": "internvl-mean", "video_llava": "video-llava-mean"}
    with refused(codes.get(family.name, "target-mean"), family=known.family):
        target_spec(tmp_path)


def test_a_window_fits_what_the_spec_says(family: Family) -> None:
    known = target_architecture(family.folder)
    target, spec = known.model(known.load(Placement()), known.tokenizer()), known.spec
    with torch.inference_mode():
        features = target.encode(frames(spec.frames, 2 * spec.image_size, spec.image_size))
        units = [target.unit(one, i) for i, one in enumerate(features)]
    assert 0 < sum(map(len, units)) <= spec.frame_tokens
    assert all(len(unit.positions) == spec.axes for unit in units)
    wanted = chain(*target.prompt_ids(QUESTIONS[0]))
    assert len([*wanted]) + spec.frame_tokens < spec.most_tokens
