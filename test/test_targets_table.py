"""The tables of targets match the estimator, for releases with their published sizes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import targets_table
from reference_pages import with_blocks

MILLIONS = {
    "SmolVLM2-256M": 256,
    "SmolVLM2-500M": 507,
    "SmolVLM2-2.2B": 2247,
    "LLaVA-OneVision-0.5B": 894,
    "LLaVA-OneVision-7B": 8030,
    "InternVL3-1B": 938,
    "InternVL3-2B": 2089,
    "InternVL3-8B": 7944,
    "Qwen3-VL-2B": 2128,
    "Qwen3-VL-4B": 4438,
    "Qwen3-VL-8B": 8767,
}
"""Millions of parameters according to the hub."""


def test_releases_have_the_published_parameters():
    counted = {}
    for name, files in targets_table._releases():
        values = files["config.json"]
        config = CONFIG_MAPPING[values["model_type"]].from_dict(values)
        with torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(config)
        counted[name] = round(sum(parameter.numel() for parameter in model.parameters()) / 1e6)
    assert counted == MILLIONS


@pytest.mark.parametrize("page", targets_table.PAGES, ids=lambda page: page.name)
def test_tables_match_the_estimator(page):
    text = page.read_text()
    assert text == with_blocks(text, targets_table.BLOCKS), "run scripts/targets_table.py"
