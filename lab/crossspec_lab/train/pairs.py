"""Paired states: those of both models of a pair on the same windows, on disk, for heads to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from crossspec_lab.baselines.speculative import shared_ids
from crossspec_lab.heads.eagle import tapped_layers
from crossspec_lab.heads.head import IGNORED, Pairs, Sizes
from crossspec_lab.identity import check_same
from crossspec_lab.train.reading import read_chunks
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
from crossspec_ros.errors import InputError
from crossspec_ros.files import replacing
from crossspec_ros.models.base import Chunk, EventModel
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_LIMIT = 64
"""Highest number of tokens of a caption."""
_PADDING = {"tokens": IGNORED, "draft_tokens": IGNORED}


class PairExtractor:
    """Computes the states of both models of a pair; `close` ends its threads."""

    def __init__(self, pair: ModelPair, question: str) -> None:
        self.pair, self.question = pair, question
        # It writes the target's own captions, and much faster than the target alone.
        self._decoder = speculative_decoder(pair)
        self._drafts = None
        if pair.draft is not None and pair.translation is not None:
            self._drafts = DraftModel(pair.draft, pair.translation)

    @torch.inference_mode()
    def __call__(self, window: Window) -> dict[str, Tensor]:
        """Return the tensors of one window, by the names of `Pairs`, as they are kept on disk."""
        target = self.pair.target
        tokens = self._decoder.caption(window, Options(self.question, _LIMIT), Trace()).token_ids
        question = target.prompt_ids(self.question)[1]
        frames = [target.unit(features, i) for i, features in enumerate(target.encode(window.frames))]
        read = Chunk.joined(
            [target.opening(), *frames, target.closing(self.question), target.words(tokens[:-1])]
        )
        output = read_chunks(target, [read], output_hidden_states=True)
        rows = len(question) + len(tokens) - 1
        taps = tapped_layers(target.body.config.num_hidden_layers)
        found = {
            "tokens": torch.tensor(tokens),
            "question": torch.tensor(question),
            "frames": torch.cat([unit.embeds for unit in frames]),
            "units": torch.tensor([len(unit) for unit in frames]),
            "states": output.last_hidden_state[0, -rows:],
            "taps": torch.cat([output.hidden_states[i][0, -rows:] for i in taps], -1),
        }
        if self._drafts is not None and len(window.event_images):
            found |= self._drafted(self._drafts, window, tokens)
        return {
            name: tensor.to(torch.bfloat16 if tensor.is_floating_point() else torch.int32).cpu().contiguous()
            for name, tensor in found.items()
        }

    def _drafted(self, drafts: DraftModel, window: Window, tokens: tuple[int, ...]) -> dict[str, Tensor]:
        # As live: the last slice is complete at the close only.
        draft = drafts.draft(window.event_images[:-1], self.question, _LIMIT)
        drafts.submit(draft.run, Trace()).result()
        proposed = draft.proposal().tokens
        if tuple(draft.tokens[: len(proposed)]) != proposed or max(tokens) >= shared_ids(self.pair):
            return {}
        forced = forced_states(drafts.model, draft, tokens)
        return {"draft_states": forced, "draft_tokens": drafts.model.logits(forced).argmax(-1)}

    def close(self) -> None:
        self._decoder.close()
        if self._drafts is not None:
            self._drafts.close()


@torch.inference_mode()
def forced_states(model: EventModel, draft: EventDraft, tokens: tuple[int, ...]) -> Tensor:
    """Return the (n, width) last hidden states from which the draft chooses each of n `tokens`.

    The draft reads the tokens before each in place of its own.
    """
    prompt = model.prompt(draft.question, model.encode(draft.images))
    inputs = torch.cat([prompt.embeds, model.words(tokens).embeds])
    hidden = model.body(inputs_embeds=inputs[None]).last_hidden_state[0]
    return hidden[-len(tokens) - 1 : -1]


def extract(
    extractor: PairExtractor,
    windows: Iterable[Window],
    folder: Path,
    count: int,
    report: Callable[[int], None] = lambda done: None,
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> PairShards:
    """Write the states of the first `count` windows; an interrupted call continues where it stopped.

    `origin` identifies models and windows. Raises InputError if `folder` holds states of others, or of
    another question.
    """
    sizes = Sizes.of(extractor.pair.target, extractor.pair.draft)
    check_same(folder, {"sizes": vars(sizes), "question": extractor.question, "of": dict(origin)})
    for i, window in enumerate(islice(windows, count)):
        file = folder / f"window-{i:06d}.safetensors"
        if not file.exists():
            with replacing(file) as scratch:
                save_file(extractor(window), scratch)
            report(i + 1)
    return PairShards(folder, count)


class PairShards:
    """The windows in a folder, a file each; tensors are read on demand."""

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder = folder
        files = sorted(folder.glob("window-*.safetensors"))[:count]
        self._windows: list[Any] = [safe_open(file, framework="pt") for file in files]

    def __len__(self) -> int:
        return len(self._windows)

    def ids(self) -> set[int]:
        """Return the token ids of questions and captions."""
        names = "question", "tokens"
        return {token for one in self._windows for name in names for token in one.get_tensor(name).tolist()}

    def rows_with(self, names: frozenset[str]) -> list[int]:
        """Return the windows that have all of these fields; raise InputError if there are none."""
        rows = [row for row, one in enumerate(self._windows) if names <= set(one.keys())]
        if not rows:
            raise InputError(
                f"no window in '{self.folder}' has what this head learns from ({', '.join(sorted(names))}): "
                f"it needs an event draft with the target's tokens, and recordings with events"
            )
        return rows

    def batch(self, rows: Sequence[int]) -> Pairs:
        """Return these windows side by side."""
        windows = [self._windows[row] for row in rows]
        names = set.intersection(*(set(one.keys()) for one in windows)) - {"question", "units"}
        fields: dict[str, Any] = {}
        for name in names:
            tensors = [_number(one.get_tensor(name)) for one in windows]
            fields[name] = pad_sequence(tensors, True, _PADDING.get(name, 0))
        lengths = [one.get_slice("frames").get_shape()[0] for one in windows]
        mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
        longest = windows[int(np.argmax(lengths))]
        return Pairs(
            question=_number(windows[0].get_tensor("question")),
            frame_mask=mask,
            units=tuple(longest.get_tensor("units").tolist()),
            **fields,
        )


def _number(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor.long()
