"""EAGLE-3 heads in the format of vllm-project/speculators, read; there layer i of
`eagle_aux_hidden_state_layer_ids` is the input of decoder layer i."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crossspec_lab.heads.eagle import Eagle, layer_config
from crossspec_lab.heads.head import Sizes
from crossspec_lab.heads.weights import WEIGHTS, fill, read_tensors, stored_dtype
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.config_files import no_config, read_json

NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def read_speculators(folder: Path, target: VideoTarget) -> Eagle:
    """The head in `folder`, in the dtype in which it is stored.

    Raises InputError that names the file which is missing, damaged, of another target or another algorithm.
    """
    file, sizes = folder / "config.json", Sizes.of(target, None)
    values = read_json(file, ["speculators_model_type", "transformer_layer_config", "draft_vocab_size"])
    kind = values["speculators_model_type"]
    if kind != "eagle3":
        raise InputError(
            f"'{file}' is of a head for the algorithm {kind!r}, but of this format only 'eagle3' is known: "
            f"name the folder of an EAGLE-3 head"
        )
    try:
        # Without a name its layer is a qwen3's.
        layer = {"model_type": "qwen3", **values["transformer_layer_config"]}
        config = layer_config(layer)
    except (TypeError, ValueError) as error:
        raise no_config(file, "an EAGLE-3 head", error) from error
    for name, its, mine in (
        ("width", config.hidden_size, sizes.width),
        ("target's width", values.get("target_hidden_size") or sizes.width, sizes.width),
        ("vocabulary", config.vocab_size, sizes.tokens),
    ):
        if its != mine:
            raise InputError(
                f"'{file}' is of a head whose {name} is {its}, but this target's is {mine}: name one that "
                f"was trained for it"
            )
    taps = values.get("eagle_aux_hidden_state_layer_ids") or []
    if not isinstance(taps, list) or any(type(one) is not int or not 0 <= one < sizes.layers for one in taps):
        raise InputError(
            f"'{file}' taps the layers {taps}, but this target has layers 0 to {sizes.layers - 1}: name a "
            f"head that was trained for it"
        )
    tensors = _named_as_ours(read_tensors(folder / WEIGHTS))
    options: dict[str, Any] = {name: bool(values.get(name)) for name in NORMS}
    options |= {"layer": layer, "taps": taps, "own_embeddings": "embed_tokens.weight" in tensors}
    options["draft_vocabulary"] = _vocabulary(values["draft_vocab_size"], tensors, sizes.tokens, folder)
    try:
        head = Eagle(sizes, **options).to(stored_dtype(tensors))
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        raise no_config(file, "an EAGLE-3 head", error) from error
    return fill(head, tensors, folder / WEIGHTS)


def _named_as_ours(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Older files name the layer otherwise; what is the verifier's own has no use."""
    return {
        "layers.0." + name.removeprefix("midlayer.") if name.startswith("midlayer.") else name: tensor
        for name, tensor in tensors.items()
        if not name.startswith("verifier_")
    }


def _vocabulary(size: object, tensors: dict[str, Tensor], tokens: int, folder: Path) -> int:
    """Size of the draft vocabulary, 0 for the target's own; raises InputError where its maps
    contradict that or each other."""

    def wrong(problem: str) -> InputError:
        return InputError(f"in '{folder / WEIGHTS}' {problem}: take both files from the same training")

    d2t, t2d = tensors.get("d2t"), tensors.get("t2d")
    if d2t is None:
        if t2d is not None or size != tokens:
            raise wrong(f"'d2t' is missing, which maps the {size} draft tokens to {tokens} of the target")
        return 0
    if d2t.dtype != torch.int64 or d2t.shape != (size,):
        raise wrong(f"'d2t' has {d2t.numel()} values of {d2t.dtype}, and not {size} of torch.int64")
    ids = torch.arange(len(d2t)) + d2t
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < tokens:
        raise wrong(f"'d2t' leads out of the target's {tokens} tokens")
    said = torch.zeros(tokens, dtype=torch.bool).index_fill(0, ids, True)
    if int(said.sum()) != len(ids) or not torch.equal(tensors.setdefault("t2d", said), said):
        raise wrong("'t2d' and 'd2t' do not name the same tokens once each")
    return len(ids)
