"""Remote target: sizes and tokens of a target on another host, as its server says them."""

from __future__ import annotations

from dataclasses import dataclass

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.text_tokenizer import read_tokenizer
from crossspec_ros.wire import captions_pb2 as wire

_SOUND = {
    "frames": range(1, 1025),
    "frames_per_unit": range(1, 1025),
    "image_size": range(1, 4097),
    "frame_tokens": range(1, 2**20 + 1),
    "most_tokens": range(1, 2**20 + 1),
    "eos_ids": range(1, 65),
    "closing_ids": range(65),
}
"""Sizes that a target may have; of lists their lengths. The families' are far within."""


@dataclass(frozen=True)
class RemoteDevice:
    """In place of a torch device."""

    url: str
    type: str = "remote"

    def __str__(self) -> str:
        return self.url


class RemoteTarget:
    """The part of `models.base.VideoTarget` that needs no weights, as a server's welcome says it."""

    def __init__(self, url: str, welcome: wire.Welcome) -> None:
        """Raise InputError if the server sends no tokenizer, or sizes that no target has."""
        _check_sizes(url, welcome)
        self.spec = InputSpec(
            welcome.frames,
            welcome.frames_per_unit,
            welcome.image_size,
            welcome.frame_tokens,
            welcome.most_tokens,
            tuple(welcome.eos_ids),
        )
        self._closing = tuple(welcome.closing_ids)
        self.device, self.dtype = RemoteDevice(url), "the server's"
        try:
            self.tokenizer = read_tokenizer(welcome.tokenizer.encode())
        except (KeyboardInterrupt, SystemExit):
            raise
        # tokenizers knows only the bare Exception, and its panics are not even that.
        except BaseException as error:
            raise InputError(
                f"the server at {url} sends no tokenizer ({error}): is it crossspec serve of this version?"
            ) from error

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of the question and of what ends the prompt; the server checks the length of all of it."""
        asked = self.tokenizer.encode(question, add_special_tokens=False).ids
        return (), (*asked, *self._closing)


def _check_sizes(url: str, welcome: wire.Welcome) -> None:
    for name, sound in _SOUND.items():
        said = getattr(welcome, name)
        size = said if isinstance(said, int) else len(said)
        if size not in sound:
            raise InputError(
                f"the server at {url} says {name} {size}, where targets have {sound[0]} to {sound[-1]}: is "
                f"it crossspec serve of this version?"
            )
