"""Medusa heads in the format that vLLM reads: one config, and `blocks` and `lm_heads` by number."""

from __future__ import annotations

from pathlib import Path

from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.medusa import Medusa
from crossspec_ros.drafting.heads.weights import WEIGHTS, filled, stored, stored_dtype, write
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.config_files import no_config, read_json

_PREFIX = "medusa_heads."


def read_medusa(folder: Path, target: VideoTarget) -> Medusa:
    """The heads in `folder`, in the dtype in which they are stored.

    Raises InputError that names the file which is missing, damaged, or of another target.
    """
    file, sizes = folder / "config.json", Sizes.of(target, None)
    values = read_json(file, ["hidden_size", "vocab_size", "num_heads", "num_hidden_layers"])
    for name, mine in (("hidden_size", sizes.width), ("vocab_size", sizes.tokens)):
        if values[name] != mine:
            raise InputError(
                f"'{file}' is of Medusa heads whose {name} is {values[name]}, but this target's is {mine}: "
                f"name some that were trained for it"
            )
    if values.get("truncated_vocab_size", sizes.tokens) != sizes.tokens or values.get("original_lm_head"):
        raise InputError(
            f"'{file}' is of Medusa heads with a truncated vocabulary or the target's own head, which are "
            f"not known: name some with a whole head each"
        )
    tensors = {name.removeprefix(_PREFIX): one for name, one in stored(folder / WEIGHTS).items()}

    def make() -> Medusa:
        try:
            bias = bool(values.get("medusa_fc_bias"))
            head = Medusa(sizes, values["num_heads"], values["num_hidden_layers"], bias)
            return head.to(stored_dtype(tensors))
        except (TypeError, ValueError, RuntimeError) as error:
            raise no_config(file, "Medusa heads", error) from error

    return filled(make, folder / WEIGHTS, tensors)


def save_medusa(head: Medusa, folder: Path) -> None:
    """Write them in their own dtype."""
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": head.sizes.width,
        "vocab_size": head.sizes.tokens,
        "truncated_vocab_size": head.sizes.tokens,
        "num_heads": len(head.blocks),
        "num_hidden_layers": head.options["layers"],
        "medusa_fc_bias": head.options["bias"],
        "torch_dtype": str(head.dtype).removeprefix("torch."),
    }
    write(folder, config, head.state_dict())
