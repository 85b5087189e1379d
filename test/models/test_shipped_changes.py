"""The adapter in models/smol fits the model that its config describes."""

from __future__ import annotations

import torch
from crossspec_lab.train import smol_base
from safetensors import safe_open

from crossspec_ros.models.registry import target_architecture
from crossspec_ros.models.transformers_family import TransformersTarget
from crossspec_ros.paths import share_dir

SMOL = share_dir() / "models" / "smol"
BASE_WORDS = 49_152


def test_shipped_changes_fit_model():
    architecture = target_architecture(SMOL)
    assert isinstance(architecture, TransformersTarget)
    with torch.device("meta"):
        places = architecture.module_class()(architecture.config).state_dict()
    changed = set()
    with safe_open(SMOL / smol_base.WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118
            shape, place = file.get_slice(name).get_shape(), name.removeprefix(smol_base.PREFIX)
            if ".lora_" in place:
                place, _, side = place.removesuffix(".weight").rpartition(".lora_")
                place += ".weight"
                # (rank, inputs) and (outputs, rank)
                assert shape[1 if side == "A" else 0] == places[place].shape[1 if side == "A" else 0]
            elif place == smol_base.EMBEDDINGS:
                assert shape[0] + BASE_WORDS == len(places[place])
            else:
                assert shape == list(places[place].shape)
            changed.add(place)
    unchanged = {name for name in places if name not in changed and "norm" not in name}
    assert unchanged == {"lm_head.weight"}
