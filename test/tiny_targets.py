"""Tiny random checkpoints of every target family, and transformers' own inputs for a window.

The processors' classes need torchvision, so this file calls only their parts that work without it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from checkpoint_layouts import TINY
from jinja2 import Environment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import interpolate
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor, smart_resize
from transformers.models.smolvlm import processing_smolvlm
from transformers.utils.chat_template_utils import render_jinja_template
from transformers.video_utils import VideoMetadata

from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.video_llava import target_prompt

QUESTION = "What are the key elements in this scene?"
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TURNS = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + 'ROLE_END'}}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'video' %}VIDEO{% else %}TEXT{% endif %}{% endfor %}"
    "{{'<|im_end|>TURN_END'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\\n' }}{% endif %}"
)


def turns(role_end, video, text, turn_end):
    """Return a released ChatML template for a question about a video."""
    parts = {"ROLE_END": role_end, "VIDEO": video, "TEXT": text, "TURN_END": turn_end}
    template = TURNS
    for name, part in parts.items():
        template = template.replace(name, part)
    return template


def noise(count, height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)


def channels_first(frames):
    return torch.tensor(frames).permute(0, 3, 1, 2)


def stretched(frames, side, mean=0.5, deviation=0.5):
    """Return frames as squares, like the processors of SigLIP and InternViT."""
    square = interpolate(channels_first(frames), [side, side], mode="bicubic", antialias=True).float()
    return (square - torch.as_tensor(mean) * 255) / (torch.as_tensor(deviation) * 255)


class TinyFamily:
    """A target family. Subclasses have three more methods.

    `config(ids, text)` returns transformers' config with the language model's values `text`.
    `text(frames, question, template, values)` returns the prompt with the video's tokens.
    `pixels(frames, folder, values)` returns the other inputs.
    """

    model: str
    special: tuple[str, ...] = CHATML
    ends: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")
    template = ""
    corpus = f"user\nFrame1: \nFrame2: {QUESTION} assistant\n The red car is left of <0.1 seconds> the van."
    pieces: tuple[Any, ...] = (
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    )
    language: Mapping[str, Any] = MappingProxyType({})
    """Values of the language model's config in addition to its sizes."""

    def tokenizer(self):
        """Return a tokenizer that splits the prompt like the released one."""
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.Sequence(list(self.pieces))
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
        made.train_from_iterator([self.corpus] * 50, trainer)
        made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in self.special])
        return made

    def checkpoint(self, folder, tied=False, **text):
        """Write a checkpoint; `text` overrides values of the language model's config."""
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = self.tokenizer()
        tokenizer.save(str(folder / "tokenizer.json"))
        ids = {token: tokenizer.token_to_id(token) for token in self.special}
        ends = [ids[end] for end in self.ends]
        language = {
            "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 2048, "eos_token_id": ends[0],
            # Released vocabularies have more rows than tokens.
            "vocab_size": tokenizer.get_vocab_size() + 7,
        }  # fmt: skip
        config = self.config(ids, {**language, **self.language, **text})
        config.tie_word_embeddings = tied
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = getattr(transformers, self.model)(config)
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    # Large, so that the output depends on the entire input.
                    torch.nn.init.normal_(parameter, std=2 * parameter[0].numel() ** -0.5)
        model.generation_config.eos_token_id = ends
        model.generation_config.pad_token_id = ids["<|endoftext|>"]
        model.save_pretrained(folder)
        return folder

    def inputs(self, folder, frames, question, template=""):
        """Return the inputs of transformers' processor for (n, H, W, 3) uint8 frames."""
        values = json.loads((folder / "config.json").read_text())
        text = self.text(len(frames), question, template or self.template, values)
        ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids])
        made = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return made | self.pixels(frames, folder, values)

    def loaded(self, folder):
        """Return transformers' own module."""
        return getattr(transformers, self.model).from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def generated(self, folder, frames, question, limit):
        """Return transformers' own greedy tokens, with the end of sequence."""
        prompt = self.inputs(folder, frames, question)
        out = self.loaded(folder).generate(**prompt, do_sample=False, max_new_tokens=limit)
        return tuple(out[0, prompt["input_ids"].shape[1] :].tolist())


def chat(question, template):
    content = [{"type": "video"}, {"type": "text", "text": question}]
    messages = [[{"role": "user", "content": content}]]
    (text,), _ = render_jinja_template(messages, chat_template=template, add_generation_prompt=True)
    return text


class VideoLlava(TinyFamily):
    """The shipped tiny checkpoint."""

    model = "VideoLlavaForConditionalGeneration"

    def checkpoint(self, folder, tied=False, **text):
        return Path(shutil.copytree(TINY / "target", folder, dirs_exist_ok=True))

    def text(self, frames, question, template, values):
        return ("<video>" * (17 * frames)).join(target_prompt(question))

    def pixels(self, frames, folder, values):
        return {"pixel_values_videos": clip_pixels(frames, 64)[None]}

    def loaded(self, folder):
        from crossspec_ros.models.placement import Placement
        from crossspec_ros.models.registry import target_architecture

        # The checkpoint has no tower for still images.
        return target_architecture(folder).load(Placement())


class LlavaOnevision(TinyFamily):
    """As in released checkpoints, patches leave a margin, and pooling halves an odd number of patches."""

    model = "LlavaOnevisionForConditionalGeneration"
    special = (*CHATML, "<image>", "<video>")
    template = turns(" ", "<video>", "{{ '\\n' + content['text'] }}", "")
    pieces = (pre_tokenizers.ByteLevel(add_prefix_space=False),)
    language = MappingProxyType({"model_type": "qwen2"})

    def config(self, ids, text):
        tower = {
            "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64, "image_size": 30,
            "patch_size": 4, "vision_use_head": False, "num_hidden_layers": 2, "num_attention_heads": 4,
        }  # fmt: skip
        tokens = {"image_token_index": ids["<image>"], "video_token_index": ids["<video>"]}
        return transformers.LlavaOnevisionConfig(text_config=text, vision_config=tower, **tokens)

    def text(self, frames, question, template, values):
        tower = values["vision_config"]
        pooled = math.ceil(tower["image_size"] // tower["patch_size"] / 2)
        # The last token is a newline.
        return chat(question, template).replace("<video>", "<video>" * (frames * pooled**2 + 1), 1)

    def pixels(self, frames, folder, values):
        return {"pixel_values_videos": stretched(frames, values["vision_config"]["image_size"])[None]}


class InternVL(TinyFamily):
    """With the language model of InternVL3."""

    model = "InternVLForConditionalGeneration"
    special = (*CHATML, "<img>", "</img>", "<IMG_CONTEXT>")
    template = turns("\\n", "{{ '<video>\\n' }}", "{{ content['text'] }}", "\\n")
    language = MappingProxyType(
        {
            "model_type": "qwen2",
            "rope_scaling": {"factor": 2.0, "rope_type": "dynamic", "type": "dynamic"},
            "rope_theta": 1000000.0,
        }
    )

    def config(self, ids, text):
        tower = {
            "hidden_size": 32, "intermediate_size": 64, "image_size": 32, "patch_size": 4,
            "attention_bias": True, "num_hidden_layers": 2, "num_attention_heads": 4,
        }  # fmt: skip
        tokens = {"image_token_id": ids["<IMG_CONTEXT>"], "image_seq_length": 16}
        return transformers.InternVLConfig(text_config=text, vision_config=tower, **tokens)

    def text(self, frames, question, template, values):
        processor: Any = SimpleNamespace(
            start_image_token="<img>",
            end_image_token="</img>",
            image_token="<IMG_CONTEXT>",
            image_seq_length=values["image_seq_length"],
        )
        videos = {"pixel_values_videos": torch.zeros(1, frames)}
        written = InternVLProcessor.replace_video_token(processor, videos, 0)
        return chat(question, template).replace("<video>", written, 1)

    def pixels(self, frames, folder, values):
        mean, deviation = (
            torch.tensor(named).view(3, 1, 1) for named in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        )
        side = values["vision_config"]["image_size"][0]
        return {"pixel_values": stretched(frames, side, mean, deviation)}


class Qwen3VL(TinyFamily):
    """With at most 48 tokens in a pair of frames."""

    model = "Qwen3VLForConditionalGeneration"
    special = (*CHATML, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    template = turns("\\n", "<|vision_start|><|video_pad|><|vision_end|>", "{{ content['text'] }}", "\\n")
    language = MappingProxyType(
        {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
        }
    )
    factor = 8
    """Edge of a token in pixels."""

    class Processor(Qwen3VLProcessor):
        """transformers' processor without its components."""

        image_token, video_token = "<|image_pad|>", "<|video_pad|>"
        vision_start_token, vision_end_token = "<|vision_start|>", "<|vision_end|>"
        video_processor = SimpleNamespace(merge_size=2, temporal_patch_size=2)

        def __init__(self):
            pass

    def config(self, ids, text):
        tower = {
            "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 4,
            "spatial_merge_size": 2, "out_hidden_size": text["hidden_size"], "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        }  # fmt: skip
        return transformers.Qwen3VLConfig(
            text_config=text,
            vision_config=tower,
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )

    def checkpoint(self, folder, tied=False, **text):
        super().checkpoint(folder, tied, **text)
        size = {"longest_edge": 8 * 48 * self.factor**2, "shortest_edge": 4096}
        (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": size}))
        return folder

    def inputs(self, folder, frames, question, template=""):
        """Return inputs at 8 frames per second, in the size for 8 frames with at most 256 tokens a pair."""
        count, height, width, _ = frames.shape
        patch = json.loads((folder / "config.json").read_text())["vision_config"]["patch_size"]
        budget = json.loads((folder / "video_preprocessor_config.json").read_text())["size"]
        most = min(budget["longest_edge"], 8 * 256 * (2 * patch) ** 2)
        size = smart_resize(8, height, width, 2, 2 * patch, budget["shortest_edge"], most)
        resized = interpolate(channels_first(frames).contiguous(), size, mode="bicubic", antialias=True)
        normal = (resized.float() - 127.5) / 127.5
        patches, *grid = Qwen3VLVideoProcessor.patchify(None, normal[None], patch, 2, 2)
        video: dict[str, Any] = {
            "video_grid_thw": torch.tensor([grid]),
            "video_metadata": [VideoMetadata(count, fps=8.0, frames_indices=list(range(count)))],
        }
        processor = self.Processor()
        replaced = processor.replace_video_token(video, 0)
        (text,), _ = processor.get_text_with_replacements(
            [chat(question, template or self.template)], videos_replacements=[replaced]
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = torch.tensor([tokenizer.encode(text).ids])
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": 2 * (ids == tokenizer.token_to_id("<|video_pad|>")).int(),
            "pixel_values_videos": patches[0],
            "video_grid_thw": video["video_grid_thw"],
        }


class SmolVLM(TinyFamily):
    """The text before the frames describes a full window, also for fewer frames."""

    model = "SmolVLMForConditionalGeneration"
    special = (*CHATML, "<global-img>", "<fake_token_around_image>", "<image>", "<end_of_utterance>")
    ends = ("<end_of_utterance>", "<|im_end|>")
    pieces = (pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False))
    language = MappingProxyType({"model_type": "llama", "num_hidden_layers": 3, "pad_token_id": 2})

    @property
    def corpus(self):
        return self.written(8, QUESTION, 16)

    def config(self, ids, text):
        tower = {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 64, "patch_size": 8,
        }  # fmt: skip
        return transformers.SmolVLMConfig(
            text_config=text,
            vision_config=tower,
            scale_factor=2,
            image_token_id=ids["<image>"],
            dtype="float32",
        )

    def checkpoint(self, folder, tied=False, **text):
        super().checkpoint(folder, tied, **text)
        (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"longest_edge": 4 * 64}}))
        return folder

    def text(self, frames, question, template, values):
        tower = values["vision_config"]
        tokens = (tower["image_size"] // tower["patch_size"] // values["scale_factor"]) ** 2
        return self.written(frames, question, tokens)

    def written(self, frames, question, tokens):
        """Return the prompt by the processor's template for videos."""
        content = [{"type": "video"}, {"type": "text", "text": question}]
        # transformers trims blocks, which is not jinja2's default.
        template = Environment(trim_blocks=True, lstrip_blocks=True).from_string(
            processing_smolvlm.DEFAULT_CHAT_TEMPLATE
        )
        text = template.render(messages=[{"role": "user", "content": content}], add_generation_prompt=True)
        video = processing_smolvlm.DEFAULT_VIDEO_INTRO.format(frame_count="eight", video_duration="0:00:01")
        for _ in range(frames):
            video += processing_smolvlm.FRAME_TIMESTAMP_MESSAGE.format(timestamp="00:00")
            video += f"<fake_token_around_image><global-img>{'<image>' * tokens}<fake_token_around_image>"
        return text.replace("<video>", video + processing_smolvlm.DEFAULT_MEDIA_OUTTRO, 1)

    def pixels(self, frames, folder, values):
        """Return inputs by the released processors' settings: `size` is 4 * the square's edge."""
        side, images = values["vision_config"]["image_size"], channels_first(frames)
        height, width = images.shape[-2:]
        longest = 4 * side
        if width >= height:
            sizes = [int(longest / (width / height)), longest]
        else:
            sizes = [longest, int(longest * (width / height))]
        for size in [[n + n % 2 for n in sizes], [side, side]]:
            images = interpolate(images, size, mode="lanczos", antialias=True)
        mask = torch.ones(1, len(frames), side, side, dtype=torch.long)
        return {"pixel_values": images.float().sub(127.5).div(127.5)[None], "pixel_attention_mask": mask}


TINY_FAMILIES: dict[str, TinyFamily] = {
    "video_llava": VideoLlava(),
    "llava_onevision": LlavaOnevision(),
    "internvl": InternVL(),
    "qwen3_vl": Qwen3VL(),
    "smolvlm": SmolVLM(),
}
