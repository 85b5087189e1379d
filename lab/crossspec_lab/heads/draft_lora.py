"""L6: low-rank changes of the event draft's own attention, by peft; merged when loaded, so that they cost
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor

from crossspec_lab.heads.head import Head, Pairs, Sizes, token_loss
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.base import EventModel

WEIGHTS = "adapter_model.safetensors"
"""peft's own name."""
_ATTENTION = r"layers\.\d+\.self_attn\.[qkvo]_proj"
"""Not that of the vision tower, which is in the same module."""


class DraftLora(Head):
    """LoRA (Hu et al., 2021) on q, k, v and o: rank 16, alpha 32. It learns to say what the target says.

    It has no say of its own: the event draft, changed, has.
    """

    kind = "draft_lora"
    learns_from = frozenset({"event_tokens"})

    def __init__(
        self, sizes: Sizes, draft: EventModel, question: str, rank: int = 16, alpha: int = 32
    ) -> None:
        super().__init__(sizes, rank=rank, alpha=alpha)
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=_ATTENTION)
        self._draft, self._question = (draft,), question
        self._changed: tuple[Any, ...] = (get_peft_model(draft.body, config),)
        for name, parameter in self._changed[0].named_parameters():
            if parameter.requires_grad:
                self.register_parameter(name.replace(".", "-"), parameter)

    def loss(self, pairs: Pairs) -> Tensor:
        """Cross entropy of the target's tokens."""
        return token_loss(self.logits(pairs), pairs.tokens)

    def logits(self, pairs: Pairs) -> Tensor:
        draft = self._draft[0]
        assert pairs.event_tokens is not None
        prompts = [
            draft.prompt(self._question, tokens.to(draft.dtype)).embeds for tokens in pairs.event_tokens
        ]
        said = draft.body.get_input_embeddings()(pairs.tokens[:, :-1].clamp(min=0))
        inputs = torch.cat([torch.stack(prompts), said], 1)
        hidden = self._changed[0](inputs_embeds=inputs, use_cache=False).last_hidden_state
        return draft.logits(hidden[:, -pairs.tokens.shape[1] :])[..., : self.sizes.tokens].float()

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        return DraftTree()

    def save(self, folder: Path) -> None:
        """In peft's own format."""
        # Or it would ask the hub about them.
        self._changed[0].save_pretrained(folder, save_embedding_layers=False)


def merge(draft: EventModel, folder: Path) -> None:
    """Change the draft as the adapter in `folder` says, for good.

    Raises InputError where its file is missing, damaged, or of another model.
    """
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"'{folder}' has no '{WEIGHTS}': name the folder of an adapter in safetensors")
    try:
        tensors = load_file(folder / WEIGHTS)
        # So its sizes are those of its file: its config can ask for any.
        changed = PeftModel.from_pretrained(draft.body, folder, low_cpu_mem_usage=True)
        # That has rounded them to the draft's type.
        for name, parameter in changed.named_parameters():
            if "lora_" in name and parameter.dtype in (torch.float16, torch.bfloat16):
                parameter.data = parameter.data.float()
        set_peft_model_state_dict(changed, tensors)
        changed.merge_and_unload()
    except MemoryError:
        raise
    # peft raises errors of many types for folders that it did not write.
    except Exception as error:
        raise InputError(
            f"'{folder}' is no adapter of this event draft ({first_line(error)}): name one that was trained "
            f"for it"
        ) from error
