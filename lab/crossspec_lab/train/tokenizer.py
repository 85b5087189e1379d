"""The tiny pair's tokenizers: one byte-level BPE vocabulary, and above it each model's own special tokens.

As with Vicuna's descendants, ids of the common vocabulary mean the same to both models and ids above it do
not.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from crossspec_lab.world.phrases import QUESTION, caption
from crossspec_lab.world.scene import drive
from crossspec_ros.models.eventgpt import EVENT_END, EVENT_START, draft_prompt
from crossspec_ros.models.video_llava import target_prompt

_VOCABULARY = 768


_SPECIAL = {
    "video_llava": ("<image>", "<video>"),
    "qwen3_vl": (
        *("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
        *("<|image_pad|>", "<|video_pad|>"),
    ),
}


def train_tokenizers(drives: int = 2000, family: str = "video_llava") -> tuple[Tokenizer, Tokenizer]:
    """(target's, draft's) tokenizer, trained on the captions of that many drives and on the prompts of the
    tiny pair; the common vocabulary is the same for a target of any `family`."""
    prompts = ["".join(prompt) for prompt in (target_prompt(QUESTION), draft_prompt(QUESTION))] * 200
    captions = [caption(scene) for seed in range(drives) for scene in drive(seed, 2)]
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    base.train_from_iterator(
        captions + prompts,
        trainers.BpeTrainer(
            vocab_size=_VOCABULARY,
            special_tokens=["<unk>", "<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    target = Tokenizer.from_str(base.to_str())
    target.add_special_tokens(list(_SPECIAL[family]))
    base.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    draft = Tokenizer.from_str(base.to_str())
    if family == "video_llava":
        target.post_processor = base.post_processor
    draft.add_special_tokens(["<ev_patch>", EVENT_START, EVENT_END])
    return target, draft
