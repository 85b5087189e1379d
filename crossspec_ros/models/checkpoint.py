"""Tensors of a checkpoint folder, seen without reading them, and a model filled with them.

A folder has safetensors or `.bin` files, one or several, with an index or with numbers in their names.
Nothing in them is ever executed. All that is damaged is refused by the name of its file before memory is
taken.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel
from transformers.utils import logging

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import is_file, tensors_file
from crossspec_ros.models.config_files import check_kind, read_json
from crossspec_ros.models.placement import Placement
from crossspec_ros.pickles import check_torch_file

Model = TypeVar("Model", bound=PreTrainedModel)

_NUMBERED = re.compile(r"(?P<stem>.+)-\d+-of-(?P<count>\d+)(?P<suffix>\.\w+)")
_NF4_BLOCK = 64
_MOST_LAYERS = 1000
"""Even without numbers a layer takes a millisecond and tens of kilobytes."""
_LAYER = re.compile(r"(?:^model|language_model|text_model)\.layers\.(\d+)\.")
# Buffers that older versions of the libraries stored, and that follow from the config.
_COMPUTED = re.compile(r"\.(rotary_emb\.inv_freq|position_ids)$")


@dataclass(frozen=True)
class Stored:
    """One tensor in a file under its `name` there; `lazy[...]` reads it."""

    file: Path
    name: str
    shape: tuple[int, ...]
    is_float: bool
    lazy: Any


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """All tensors of the checkpoint in `folder`, by name.

    Raises InputError that names the file which is missing, damaged, or holds more than tensors.
    """
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        single, index = folder / f"{stem}{suffix}", folder / f"{stem}{suffix}.index.json"
        if single.is_file():
            return _contents(single)
        if index.is_file():
            return _indexed(index)
        if numbered := sorted(folder.glob(f"{stem}-*-of-*{suffix}")):
            return {name: one for file in _complete(numbered) for name, one in _contents(file).items()}
    check_kind(folder)
    raise InputError(
        f"the checkpoint '{folder}' has neither 'model.safetensors' nor 'pytorch_model.bin', whole or in "
        f"shards: name a folder that holds the weights"
    )


@dataclass(frozen=True)
class Filling:
    """Tensors `stored` in a folder, by their names in a `model` of these configs, which they are to fill.

    Modules `unquantized` stay as they are.
    """

    model: type[PreTrainedModel]
    configs: tuple[Any, ...]
    folder: Path
    stored: dict[str, Stored]
    unquantized: tuple[str, ...]

    def examined(self, placement: Placement, outline: PreTrainedModel | None = None) -> dict[str, Any]:
        """The tensors that `load` would take, none of them read; `outline` is a skeleton, if there is one.

        Tensors of modules that the model lacks are left out, and so are buffers that follow from the config.

        Raises:
            InputError: the config describes no such model; a tensor is missing, has another shape, is
                quantised, or is one more than a module of the model has; or the model cannot be quantised so.
        """
        _check_depth(self.configs[0], self.stored, self.folder)
        outline = outline or skeleton(self.model, *self.configs, folder=self.folder)
        tensors = _fitting(self.stored, outline)
        _check_widths(outline, placement, self.unquantized, self.folder)
        return tensors

    def load(self, placement: Placement, device: str) -> Any:
        """The model with its tensors, on `device` and quantised as placed, for inference.

        Raises InputError as `examined`.
        """
        tensors = self.examined(placement)
        config, *others = self.configs
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            loaded = self.model.from_pretrained(
                None,
                *others,
                config=config,
                state_dict=tensors,
                dtype=placement.torch_dtype,
                device_map={"": device},
                attn_implementation="sdpa",
                quantization_config=placement.quantization(self.unquantized),
            )
        # What there is no memory or no library for is told by others.
        except (TypeError, AttributeError, LookupError) as error:
            raise _no_model(self.model, self.folder, error) from error
        finally:
            logging.set_verbosity(verbosity)
        return loaded.eval().requires_grad_(False)


def skeleton(model: type[Model], *configs: Any, folder: Path | None = None) -> Model:
    """`model(*configs)` without numbers, on torch's meta device.

    Raises InputError where the configs, those in `folder`, describe no such model.
    """
    # What a config may ask for instead takes no mask as a tree needs it, or is code from elsewhere.
    for part in _parts(*configs):
        part._attn_implementation = "sdpa"
    try:
        _check_numbers(*configs)
        with torch.device("meta"):
            return model(*configs).eval()
    # Whatever transformers and torch make of values that are none.
    except Exception as error:
        raise _no_model(model, folder, error) from error


def _no_model(model: type[PreTrainedModel], folder: Path | None, error: Exception) -> InputError:
    where = f" in '{folder}'" if folder else ""
    return InputError(
        f"the config{where} describes no {model.__name__} ({first_line(error)}): take the one that came with "
        f"the weights"
    )


def _check_numbers(*configs: Any) -> None:
    """Raise TypeError or ValueError for numbers with which a module can be made, but never or not work."""
    for part in _parts(*configs):
        if (layers := getattr(part, "num_hidden_layers", 0)) > _MOST_LAYERS:
            raise ValueError(f"{layers} layers")
        for name in ("num_attention_heads", "num_heads"):
            if (heads := getattr(part, name, 1)) < 1:
                raise ValueError(f"{heads} heads")


def _parts(*configs: Any) -> Iterator[Any]:
    """The configs, and those that they are made of."""
    for config in configs:
        yield config
        yield from (getattr(config, name) for name in getattr(config, "sub_configs", ()))


def _check_depth(config: Any, stored: dict[str, Stored], folder: Path) -> None:
    """A config that asks for more layers than are stored must not make a host build them first."""
    layers = getattr(config, "text_config", config).num_hidden_layers
    depth = max((int(found[1]) for name in stored if (found := _LAYER.search(name))), default=-1) + 1
    if layers > depth:
        raise InputError(
            f"'{folder / 'config.json'}' says {layers} layers, but {depth} are stored: take config.json and "
            f"weights from the same checkpoint"
        )


def _fitting(stored: dict[str, Stored], skeleton: PreTrainedModel) -> dict[str, Any]:
    """The tensors that the skeleton, a model on the meta device, needs; not yet read."""
    wanted = {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}
    # Where it is stored nevertheless, transformers compares it, and ties equal ones only.
    if getattr(skeleton.config, "tie_word_embeddings", False) and "lm_head.weight" not in stored:
        wanted.pop("lm_head.weight", None)
    for name, shape in wanted.items():
        if name not in stored:
            raise InputError(
                f"the tensor '{name}' is not in {_list({found.file for found in stored.values()})}: take "
                f"config.json and weights from the same checkpoint"
            )
        found = stored[name]
        if found.shape != shape:
            raise InputError(
                f"the tensor '{found.name}' in '{found.file}' has shape {found.shape}, but by config.json "
                f"{shape}: take both from the same checkpoint"
            )
        if not found.is_float:
            raise InputError(
                f"the tensor '{found.name}' in '{found.file}' is quantised: take the checkpoint as it was "
                f"before, and say models.dtype instead"
            )
    parts = {_part(name) for name in wanted}
    for name, found in stored.items():
        if name not in wanted and _part(name) in parts and not _COMPUTED.search(name):
            raise InputError(
                f"the model has no place for the tensor '{found.name}' in '{found.file}': take config.json "
                f"and weights from the same checkpoint"
            )
    return {name: stored[name].lazy for name in wanted}


def _check_widths(
    skeleton: PreTrainedModel, placement: Placement, unquantized: tuple[str, ...], folder: Path
) -> None:
    # bitsandbytes itself fails at the first pass only.
    for name, module in skeleton.named_modules():
        is_nf4 = placement.dtype == "nf4" and placement.quantizes(name, unquantized)
        if not is_nf4 or not isinstance(module, torch.nn.Linear):
            continue
        for width in (module.in_features, module.out_features):
            if width % _NF4_BLOCK:
                raise InputError(
                    f"models.dtype is nf4, which needs widths that are multiples of {_NF4_BLOCK}, but "
                    f"'{name}' of '{folder}' has {width}: set it to int8"
                )


def _indexed(index: Path) -> dict[str, Stored]:
    folder, places = index.parent, read_json(index, ["weight_map"])["weight_map"]
    # A shard's name must not lead out of the folder.
    if not isinstance(places, dict) or not all(
        isinstance(name, str) and name == Path(name).name for name in places.values()
    ):
        raise InputError(f"'{index}' is no index of shards: copy it again")
    shards: dict[str, dict[str, Stored]] = {}
    for shard in sorted(set(places.values())):
        if not is_file(folder / shard):
            raise InputError(
                f"the shard '{folder}/{shard:.255}', which '{index.name}' names, is missing: copy it there"
            )
        shards[shard] = _contents(folder / shard)
    for name, shard in places.items():
        if name not in shards[shard]:
            raise InputError(
                f"the tensor '{name}' is not in '{folder / shard}', where '{index.name}' has it: "
                f"copy both again"
            )
    return {name: shards[shard][name] for name, shard in places.items()}


def _complete(shards: list[Path]) -> list[Path]:
    """All the shards that there must be, going by the number in the first one's name."""
    if not (match := _NUMBERED.fullmatch(shards[0].name)):
        return shards
    stem, count, suffix = match["stem"], match["count"], match["suffix"]
    for i in range(1, int(count) + 1):
        shard = shards[0].with_name(f"{stem}-{i:0{len(count)}}-of-{count}{suffix}")
        if shard not in shards:
            raise InputError(f"the shard '{shard}' is missing: copy it there")
    return shards


def _contents(file: Path) -> dict[str, Stored]:
    return _safetensors(file) if file.suffix == ".safetensors" else _bin(file)


def _safetensors(file: Path) -> dict[str, Stored]:
    try:
        # Reads the header, and compares it with the file's length.
        with safe_open(tensors_file(file), framework="pt") as opened:
            lazy = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"'{file}' is cut off or damaged ({first_line(error)}): copy it again") from error
    return {
        name: Stored(
            file, name, tuple(tensor.get_shape()), tensor.get_dtype().startswith(("F", "BF")), tensor
        )
        for name, tensor in lazy.items()
    }


def _bin(file: Path) -> dict[str, Stored]:
    try:
        check_torch_file(file)
        # Mapped, not read; files older than torch 1.6 are no archives and cannot be.
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
        if not isinstance(tensors, dict) or not all(
            isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in tensors.items()
        ):
            raise ValueError("something else than tensors by name")
        if not all(_is_there(tensor) for tensor in tensors.values()):
            raise ValueError("tensors whose numbers are not all in it")
    # Whatever torch.load makes of a file that is none of its own.
    except Exception as error:
        code = re.search(r"GLOBAL [\w.]+", str(error))
        reason = f"{code[0]}, which is not run" if code else type(error).__name__
        raise InputError(
            f"'{file}' is cut off, damaged, or holds more than tensors ({reason}): copy it again, or take a "
            f"checkpoint in safetensors"
        ) from error
    return {
        name: Stored(file, name, tuple(tensor.shape), tensor.is_floating_point(), tensor)
        for name, tensor in tensors.items()
    }


def _is_there(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are all in its file: a stride of 0 makes many of one."""
    is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.numel() * tensor.itemsize <= tensor.untyped_storage().nbytes()


def _part(name: str) -> str:
    """The part of a model that a tensor belongs to: its module's name up to the second dot."""
    return ".".join(name.split(".")[:-1][:2])


def _list(files: set[Path]) -> str:
    shown = sorted(f"'{file}'" for file in files)
    return " or ".join([*shown[:3], f"{len(shown) - 3} more"] if len(shown) > 3 else shown) or "any file"
