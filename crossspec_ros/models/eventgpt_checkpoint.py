"""EventGPT from a folder, as it was released (XduSyL/EventGPT) or as this project writes it.

The vision tower may be inside the checkpoint or beside it: `mm_visual_tower` of config.json is the path or
the hub id of a CLIP, which is looked for as `clip/` in the folder, and by its last name there and next to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import CLIPVisionConfig, LlamaConfig

from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import Stored, load, read_config, read_json, stored_tensors
from crossspec_ros.models.eventgpt import TOWER, EventGPT, module_name
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.prompts import EVENT_END, EVENT_PATCH, EVENT_START
from crossspec_ros.models.text_tokenizer import load_tokenizer

_MODEL_TYPE = "EventChat_llama"
_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_LLAMA_KEYS = (
    *_NEEDED, "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act",
    "rope_parameters", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias", "tie_word_embeddings",
    "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip
_CLIP_NEEDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size",
    "patch_size",
)  # fmt: skip
_CLIP_KEYS = (*_CLIP_NEEDED, "num_channels", "hidden_act", "layer_norm_eps")
_KNOWN_TOWERS: dict[str, dict[str, Any]] = {
    "clip-vit-large-patch14-336": dict(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
        image_size=336, patch_size=14,
    )
}  # fmt: skip


def load_eventgpt(folder: Path, placement: Placement) -> EventGPT:
    """The model, on the draft's device.

    Raises InputError that names the file which is missing or damaged, or does not fit the others.
    """
    config, vision = eventgpt_configs(folder)
    stored = {module_name(name): tensor for name, tensor in stored_tensors(folder).items()}
    if not any(name.startswith(TOWER) for name in stored):
        stored |= _tower_beside(folder)
    return load(
        EventGPT, config, vision, folder=folder, stored=stored, placement=placement, device=placement.draft_on
    )


def eventgpt_configs(folder: Path) -> tuple[LlamaConfig, CLIPVisionConfig]:
    """The configs of the language model and of the vision tower; raises InputError as `load_eventgpt`."""
    file = folder / "config.json"
    values = read_config(file, ["model_type"])
    if values["model_type"] != _MODEL_TYPE:
        raise InputError(
            f"'{file}' is of the type {values['model_type']}, not of EventGPT ({_MODEL_TYPE}): name "
            f"the folder of an EventGPT"
        )
    return _built(LlamaConfig, read_config(file, _NEEDED), _LLAMA_KEYS, file), _tower_config(folder)


def eventgpt_folders(folder: Path) -> list[Path]:
    """Where the checkpoint's files are: its folder, and that of the tower where it is elsewhere."""
    tower = _tower_folder(folder)
    # A link in the folder is not followed by those who look through it.
    if tower is None or tower.resolve().is_relative_to(folder.resolve()):
        return [folder]
    return [folder, tower]


def eventgpt_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer, with the tokens of its prompt; raises InputError as `load_tokenizer`."""
    rows = eventgpt_configs(folder)[0].vocab_size
    values = read_json(folder / "config.json")
    # The flags of the published code, and what it takes them for where they are not said.
    special = [EVENT_PATCH] if values.get("mm_use_im_patch_token", True) else []
    special += [EVENT_START, EVENT_END] if values.get("mm_use_im_start_end", False) else []
    return load_tokenizer(folder, rows, special)


def _tower_config(folder: Path) -> CLIPVisionConfig:
    tower = _tower_folder(folder)
    if tower is None:
        return CLIPVisionConfig(**_KNOWN_TOWERS[_tower_name(folder)])
    file = tower / "config.json"
    values = read_json(file)
    # A whole CLIP has a text tower as well; in the part for each, what is left out is transformers' default.
    inner = values.get("vision_config")
    values = inner if isinstance(inner, dict) else read_json(file, _CLIP_NEEDED)
    return _built(CLIPVisionConfig, values, _CLIP_KEYS, file)


def _tower_folder(folder: Path) -> Path | None:
    """Where the tower's config is; None where it is known by its name."""
    named = read_json(folder / "config.json").get("mm_visual_tower")
    name = _tower_name(folder)
    places = [folder / "clip", folder / name, folder.resolve().parent / name]
    if isinstance(named, str) and Path(named).is_absolute():
        places.append(Path(named))
    for place in places:
        if (place / "config.json").is_file():
            return place
    if name in _KNOWN_TOWERS:
        return None
    looked = ", ".join(f"'{place}'" for place in places)
    raise InputError(
        f"the vision tower '{named}' of '{folder}' has no config.json in {looked}: put the tower's folder at "
        f"the first of them"
    )


def _tower_name(folder: Path) -> str:
    named = read_json(folder / "config.json").get("mm_visual_tower")
    return Path(named).name if isinstance(named, str) and named else "clip"


def _tower_beside(folder: Path) -> dict[str, Stored]:
    """The tensors of the tower's own checkpoint, which may be a whole CLIP, under the names in `EventGPT`."""
    tower = _tower_folder(folder)
    if tower is None:
        raise InputError(
            f"the checkpoint '{folder}' has no vision tower, and there is no folder "
            f"'{_tower_name(folder)}' in it or next to it: put the CLIP that its config.json names there"
        )
    stored = stored_tensors(tower)
    inner = {name: tensor for name, tensor in stored.items() if name.startswith("vision_model.")}
    return {TOWER + name.removeprefix("vision_model."): tensor for name, tensor in (inner or stored).items()}


def _built(config: Any, values: dict[str, Any], keys: tuple[str, ...], file: Path) -> Any:
    """`config` with those of the values that describe the model's shape, never what says where code is."""
    try:
        return config(**{key: values[key] for key in keys if key in values})
    # transformers' validation raises errors of its own kinds.
    except Exception as error:
        raise InputError(
            f"'{file}' is no config of EventGPT ({' '.join(str(error).split())[:160]}): take the one that "
            f"came with the weights"
        ) from error
