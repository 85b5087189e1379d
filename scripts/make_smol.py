"""Complete models/smol: add its low-rank changes to SmolLM2-135M and write the weights and the tokenizer.

    python scripts/make_smol.py [FOLDER]

The repository has only what smol changes, in peft's format. `make real` calls this script.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "lab")]

from crossspec_lab.train import smol_base  # noqa: E402

from crossspec_ros.files import replacing  # noqa: E402

_LOW_RANK = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])\.weight")


def complete(folder: Path) -> None:
    """Write `model.safetensors`, in bfloat16, and `tokenizer.json` into the folder of the changes."""
    options = json.loads((folder / smol_base.CONFIG).read_text())
    stored = load_file(folder / smol_base.WEIGHTS)
    module, tokenizer = smol_base.base_model()
    tensors = smol_base.base_tensors(module)
    add_changes(tensors, stored, options["lora_alpha"] / options["r"])
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    with replacing(folder / "model.safetensors") as scratch:
        save_file(weights, scratch, metadata={"format": "pt"})


def add_changes(tensors: dict[str, Tensor], stored: dict[str, Tensor], scale: float) -> None:
    """Change the base's tensors: low-rank changes (LoRA, Hu et al., 2021) count `scale` times.

    Rows of added tokens follow those of the embeddings. All other tensors are stored as they are.
    """
    stored = {name.removeprefix(smol_base.PREFIX): tensor.float() for name, tensor in stored.items()}
    for name, tensor in stored.items():
        low_rank = _LOW_RANK.fullmatch(name)
        if name == smol_base.EMBEDDINGS:
            tensors[name] = torch.cat([tensors[name], tensor])
        elif low_rank is None:
            tensors[name] = tensor
        elif low_rank["side"] == "A":
            other, changed = stored[f"{low_rank['module']}.lora_B.weight"], f"{low_rank['module']}.weight"
            tensors[changed] = tensors[changed] + scale * other @ tensor


if __name__ == "__main__":
    complete(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "models" / "smol")
