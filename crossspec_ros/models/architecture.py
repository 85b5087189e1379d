"""What is known of a model before its weights are read: the third contract that a family fills."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from crossspec_ros.models.base import EventModel, InputSpec, VideoTarget
from crossspec_ros.models.placement import Placement

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Model_co = TypeVar("Model_co", covariant=True)


@dataclass(frozen=True)
class Sizes:
    """How many numbers a model keeps and works with, beside its weights.

    An embedding has `width`, what a tower makes of a token `features`, a row of logits `vocabulary`. In a KV
    cache a token takes `cached`; inside a layer `layer` a token live at once, in the largest pass through the
    vision tower `tower` in all. A quantised weight is unpacked for a pass, at most `unpacked` numbers at a
    time.
    """

    width: int
    features: int
    vocabulary: int
    cached: int
    layer: int
    tower: int
    unpacked: int


class Architecture(Protocol[Model_co]):
    """A model known by its configs, those of a checkpoint's folder or those of a release."""

    @property
    def folder(self) -> Path | None:
        """That of the checkpoint, where there is one."""
        ...

    @property
    def unquantized(self) -> tuple[str, ...]:
        """Names of modules that stay as they are: beside the language model they are small."""
        ...

    @property
    def sizes(self) -> Sizes: ...

    def tokenizer(self) -> Tokenizer:
        """That of the folder; raises InputError where it is missing, damaged, or of another checkpoint."""
        ...

    def skeleton(self) -> Any:
        """The module without numbers, on torch's meta device; raises InputError where there is none such."""
        ...

    def examine(self, placement: Placement) -> None:
        """Raise InputError where `load` would, before it reads numbers."""
        ...

    def load(self, placement: Placement) -> Any:
        """The module with the folder's weights, as it is placed; raises InputError that names the file which
        is missing or damaged, or does not fit the others."""
        ...

    def model(self, module: Any, tokenizer: Tokenizer) -> Model_co:
        """What speaks to the module in the words of the contract."""
        ...


class TargetArchitecture(Architecture[VideoTarget], Protocol):
    """That of a target."""

    @property
    def spec(self) -> InputSpec: ...


DraftArchitecture = Architecture[EventModel]
"""That of an event draft."""
