"""SmolVLM2: a SigLIP tower that encodes each frame, and a LLaMA.

The prompt has the number of frames and the duration before the frames, and a time stamp before each frame.
These are fixed (eight frames in a second, at nominal times), also for an incomplete window.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.models.base import FRAMES, InputSpec
from crossspec_ros.models.config_files import HALF, LANCZOS, processor_settings
from crossspec_ros.models.transformers_family import FrameByFrameModel, Prompt, TransformersTarget, Values

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

START, END = "<|im_start|>", "<end_of_utterance>"
AROUND, GLOBAL, IMAGE = "<fake_token_around_image>", "<global-img>", "<image>"

_OPENING = (
    f"{START}User: You are provided the following series of eight frames from a 0:00:01 [H:MM:SS] video.\n"
)
# The released template has full seconds, so all eight frames have this time.
_TIME = "\nFrame from 00:00:"
_TIME_TOKENS = 10
"""Tokens of `_TIME` between two frames, in the released tokenizer."""
_AROUND_TOKENS = 3
_ENLARGED = 4
"""Longest edge of an enlarged frame relative to the square's, in all releases."""


class SmolVLM(FrameByFrameModel):
    """`VideoTarget` of SmolVLM2. The time of a frame is in its chunk; that of the first is in the opening."""

    module: SmolVLMForConditionalGeneration

    def __init__(self, module: Any, tokenizer: Tokenizer, spec: InputSpec) -> None:
        super().__init__(module, tokenizer, spec)
        _, self._around_next, _ = _texts(tokenizer, "")

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        before, _, after = _texts(tokenizer, question)
        return before, after

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        return list(self.module.model.get_image_features(self.pixels(frames)[:, None]).pooler_output)

    def around(self, i: int) -> tuple[int, ...]:
        return self._around_next if i else self._around_next[-_AROUND_TOKENS:]

    def pixels(self, frames: np.ndarray) -> Tensor:
        return self.to_model(frame_pixels(frames, self.spec.image_size))


class SmolVLMArchitecture(TransformersTarget):
    """A SmolVLM2 checkpoint, described by its config."""

    config: SmolVLMConfig

    family, model_class = "SmolVLM2", SmolVLM
    transformers_class = "SmolVLMForConditionalGeneration"
    unquantized = ("lm_head", "model.vision_model", "model.connector")
    special_tokens = (START, END, AROUND, GLOBAL, IMAGE)
    default_eos = 2
    supported = (("text_config", "model_type", ("llama",)),)

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        size, scale = int(vision.get("image_size", 224)), int(values.get("scale_factor", 2))
        side = size // int(vision.get("patch_size", 32))
        if side < scale or side % scale:
            raise ValueError(f"{side} patches a side are not a multiple of the scale_factor {scale}")
        a_frame = (side // scale) ** 2 + _AROUND_TOKENS
        # The time of the first frame is in the opening.
        frame_tokens = FRAMES * a_frame + (FRAMES - 1) * _TIME_TOKENS
        most_tokens = int(text.get("max_position_embeddings", 2048))
        made: dict[str, Any] = {"image_mean": HALF, "image_std": HALF, "resample": LANCZOS}
        # transformers prefers `size` to the released files' size for videos.
        made |= {"max_image_size": {"longest_edge": size}, "size": {"longest_edge": _ENLARGED * size}}
        processor_settings(folder, cls.family, needed=["size"], **made)
        return InputSpec(FRAMES, 1, size, frame_tokens, most_tokens, ())


FAMILY = SmolVLMArchitecture


def frame_pixels(frames: np.ndarray, size: int) -> Tensor:
    """Return frames as squares of `size` pixels a side, like the released `SmolVLMVideoProcessor`.

    It first enlarges the longest edge to `_ENLARGED` * `size`, and the other in proportion to an even number.

    Args:
        frames: (n, H, W, 3) uint8 RGB.

    Returns:
        (n, 3, size, size) float32, from -1 to 1.
    """
    import torch
    from torch.nn.functional import interpolate

    longest, ratio = _ENLARGED * size, frames.shape[2] / frames.shape[1]
    shortest = int(longest / ratio if ratio >= 1 else longest * ratio)
    shortest = max(shortest + shortest % 2, 1)
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2)
    for shape in ((shortest, longest) if ratio >= 1 else (longest, shortest), (size, size)):
        # On uint8, which rounds after each resize, as in torchvision.
        pixels = interpolate(pixels, shape, mode="lanczos", align_corners=False, antialias=True)
    return (pixels.float() - 127.5) / 127.5


def _texts(tokenizer: Tokenizer, question: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the token ids before the first frame, around the second frame, and after the last.

    The text is encoded in one piece, because separate parts may give other tokens.
    """
    frame, after = f"{AROUND}{GLOBAL}{IMAGE}{AROUND}", f"\n\n{question}{END}\nAssistant:"
    encoded = tokenizer.encode(f"{_OPENING}{_TIME}{frame}{_TIME}{frame}{after}")
    first, end, second, last = [i for i, token in enumerate(encoded.tokens) if token == AROUND][:4]
    ids = tuple(encoded.ids)
    return ids[:first], (*ids[end + 1 : second + 2], ids[last]), ids[last + 1 :]
