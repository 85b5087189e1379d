"""Probabilities of answers equal transformers', for the tiny checkpoint of every target family."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from crossspec_lab.baselines.generate_inputs import continued
from plain_target import settled
from tiny_targets import TINY_FAMILIES, noise

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.standing import Standing
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import has_llama
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import NO_DRAFT
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QUESTIONS = ("What are the key elements in this scene?", "Is there anybody on the road?")


@pytest.fixture(scope="module", params=TINY_FAMILIES)
def family(request, tmp_path_factory):
    name = request.param
    return name, TINY_FAMILIES[name].checkpoint(tmp_path_factory.mktemp(name) / "target")


@pytest.mark.parametrize("runner", ["torch", "llama.cpp"])
@torch.inference_mode()
def test_probabilities_of_choices_equal_transformers(family, runner):
    """A standing question may read the frames first, or follow the caption."""
    (name, folder), seen, answers = family, noise(7, 80, 48, seed=7), list[Any]()
    pair, tiny = load_pair(tiny_models(), target=str(folder), draft=NO_DRAFT), TINY_FAMILIES[name]
    made, target, choices = None, pair.target, ("red car", "the van")
    if runner == "llama.cpp":
        if not has_llama():
            pytest.skip("llama.cpp is not installed")
        made = import_module("crossspec_ros.engine.llama_cpp").llama_runner(target, "float32", 1)
    window = Window(0, 0, 10**9, np.empty((0, 0, 0, 3), np.uint8), seen, tuple(range(7)))
    with (
        closing(LocalEngine(target, runner=made)) as engine,
        closing(PrefillHiddenDecoder(pair, Policy((), None), engine)) as decoder,
    ):
        first, _ = decoder.standing([Standing(QUESTIONS[1], choices, is_first=True)])
        options = Options(QUESTIONS[0], 4, first=first)
        decoder.caption(window, options, Trace(), on_first=answers.extend)
        decoder.choose(first[0], Trace(), answers.extend)
        settled(decoder)
    prompt, module = tiny.inputs(folder, seen, QUESTIONS[1]), tiny.loaded(folder)

    def probability(text):
        tokens = [*target.tokenizer.encode(text, add_special_tokens=False).ids, target.spec.eos_ids[0]]
        logits = module(**continued(prompt, tokens)).logits[0, -len(tokens) - 1 : -1]
        return float(logits.log_softmax(-1)[range(len(tokens)), tokens].sum().exp())

    # A target may write a space before its answer.
    wanted = [probability(choice) + probability(f" {choice}") for choice in choices]
    assert [one.probabilities for _, one in answers] == [pytest.approx(wanted, rel=1e-3)] * 2
