"""Every target family says what transformers says, on its tiny checkpoint of tiny_targets.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crossspec_lab.baselines.generate_inputs import continued, generate_inputs
from plain_target import settled
from tiny_targets import TINY_FAMILIES, noise

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.standing import Standing
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import NO_DRAFT, Placement
from crossspec_ros.models.registry import TARGETS, target_architecture
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
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    return Family(request.param, tmp_path_factory.mktemp(request.param) / "target")


def test_every_family_is_tested() -> None:
    assert set(TARGETS) == set(TINY_FAMILIES)


def test_all_end_tokens_are_read(family: Family, tmp_path: Path) -> None:
    folder = shutil.copytree(family.folder, tmp_path / "target")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 5], "pad_token_id": 0}))
    assert target_architecture(folder).spec.eos_ids == (7, 5)


@pytest.mark.parametrize("runner", ["torch", "llama.cpp"])
@torch.inference_mode()
def test_probabilities_of_choices_equal_transformers(family: Family, runner: str) -> None:
    """Standing questions may be the first to read the frames, or follow the caption."""
    seen, answers = frames(7, 80, 48), list[Any]()
    pair = load_pair(tiny_models(), target=str(family.folder), draft=NO_DRAFT)
    made, target, choices = None, pair.target, ("red car", "the van")
    if runner == "llama.cpp":
        pytest.importorskip("llama_cpp")
        made = import_module("crossspec_ros.engine.llama_cpp").llama_runner(target, "float32", 1)
    window = Window(0, 0, 10**9, np.empty((0, 0, 0, 3), np.uint8), seen, tuple(range(7)))
    with (
        closing(LocalEngine(target, runner=made)) as engine,
        closing(PrefillHiddenDecoder(pair, Policy((), None), engine)) as decoder,
    ):
        first, _ = decoder.standing([Standing(QUESTIONS[1], choices, is_first=True)])
        options = Options(QUESTIONS[0], 4, first=first)
        decoder.caption(window, options, Trace(), on_first=lambda _, found: answers.extend(found))
        decoder.choose(first[0], Trace(), lambda _, found: answers.extend(found))
        settled(decoder)
    prompt, module = family.tiny.inputs(family.folder, seen, QUESTIONS[1]), family.tiny.loaded(family.folder)

    def probability(text: str) -> float:
        tokens = [*target.tokenizer.encode(text, add_special_tokens=False).ids, target.spec.eos_ids[0]]
        logits = module(**continued(prompt, tokens)).logits[0, -len(tokens) - 1 : -1]
        return float(logits.log_softmax(-1)[range(len(tokens)), tokens].sum().exp())

    # A target may write a space before its answer.
    wanted = [probability(choice) + probability(f" {choice}") for choice in choices]
    assert [one.probabilities for one in answers] == [pytest.approx(wanted, rel=1e-3)] * 2


@torch.inference_mode()
def test_what_generate_is_given_for_comparison_makes_it_say_the_same(family: Family) -> None:
    known, seen = target_architecture(family.folder), frames(8, 48, 80)
    module = known.load(Placement())
    inputs = generate_inputs(known.model(module, known.tokenizer()), seen, QUESTIONS[0])
    out = module.generate(**inputs, do_sample=False, max_new_tokens=LIMIT)
    assert tuple(out[0, inputs["input_ids"].shape[1] :].tolist()) == family.generated(seen, QUESTIONS[0])
