"""Paired states: what the models of a pair made of the same windows, on disk, for heads to learn from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from crossspec_lab.baselines.speculative import shared_ids
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.eagle import tapped_layers
from crossspec_lab.heads.head import IGNORED, Head, Pairs, Sizes
from crossspec_ros.captioning.caption import Options
from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file, replacing
from crossspec_ros.models.base import Chunk, EventModel, VideoTarget, to_device
from crossspec_ros.models.config_files import read_json
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.transformers_family import added_to_layers
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_INDEX = "pairs.json"


class PairExtractor:
    """Asks both models of a pair about windows; `close` ends its threads."""

    def __init__(
        self,
        pair: ModelPair,
        question: str,
        max_new_tokens: int = 64,
        heads: Sequence[Head] = (),
    ) -> None:
        self.pair, self.question = pair, question
        # Lossless, and much faster than the target alone.
        self._decoder = head_decoder(pair, heads)
        self._drafts = None
        if pair.draft is not None and pair.translation is not None:
            self._drafts = DraftModel(pair.draft, pair.translation)
        self._most = max_new_tokens

    @torch.inference_mode()
    def __call__(self, window: Window) -> dict[str, Tensor]:
        """The tensors of one window, by the names of `Pairs`; states in bfloat16."""
        target = self.pair.target
        tokens = self._decoder.caption(window, Options(self.question, self._most), Trace()).token_ids
        question, frames = target.prompt_ids(self.question)[1], frame_units(target, window)
        read = Chunk.joined(
            [target.opening(), *frames, target.closing(self.question), target.words(tokens[:-1])]
        )
        places = to_device(read.positions, read.embeds.device)
        output = target.body(
            inputs_embeds=read.embeds[None],
            position_ids=places if len(places) == 1 else places[:, None],
            use_cache=False,
            output_hidden_states=True,
            **added_to_layers(None if read.layers is None else read.layers[:, None]),
        )
        rows = len(question) + len(tokens) - 1
        taps = [
            output.hidden_states[i][0, -rows:] for i in tapped_layers(target.body.config.num_hidden_layers)
        ]
        found = shown(tokens, question, frames) | {
            "states": output.last_hidden_state[0, -rows:],
            "taps": torch.cat(taps, -1),
        }
        if self._drafts is not None and len(window.event_images):
            found |= self._drafted(self._drafts, window, tokens)
        return stored(found)

    def _drafted(self, drafts: DraftModel, window: Window, tokens: tuple[int, ...]) -> dict[str, Tensor]:
        # As live: the last slice is complete at the close only.
        images = window.event_images[:-1]
        draft = drafts.draft(images, self.question, self._most)
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


class TaughtExtractor:
    """Frame embeddings of windows with captions that the target was taught, for heads that see no more.

    It takes a pass of the target's tower alone, where its own captions take seconds of a large one.
    """

    def __init__(self, pair: ModelPair, question: str, taught: Callable[[int], Sequence[int]]) -> None:
        """`taught` gives the tokens of a window's caption by its index."""
        self.pair, self.question, self._taught = pair, question, taught

    @torch.inference_mode()
    def __call__(self, window: Window) -> dict[str, Tensor]:
        """The tensors of one window, by the names of `Pairs`."""
        target = self.pair.target
        question = target.prompt_ids(self.question)[1]
        return stored(shown(self._taught(window.index), question, frame_units(target, window)))


def frame_units(target: VideoTarget, window: Window) -> list[Chunk]:
    """Chunks of a window's frames, as the target reads them."""
    return [target.unit(features, i) for i, features in enumerate(target.encode(window.frames))]


def shown(tokens: Sequence[int], question: Sequence[int], frames: Sequence[Chunk]) -> dict[str, Tensor]:
    """Tensors that any head may learn from."""
    return {
        "tokens": torch.tensor(tokens),
        "question": torch.tensor(question),
        "frames": torch.cat([unit.embeds for unit in frames]),
        "units": torch.tensor([len(unit) for unit in frames]),
    }


def stored(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in the numbers in which they are kept on disk."""
    return {
        name: tensor.to(torch.bfloat16 if tensor.is_floating_point() else torch.int32).cpu().contiguous()
        for name, tensor in found.items()
    }


@torch.inference_mode()
def forced_states(model: EventModel, draft: EventDraft, tokens: tuple[int, ...]) -> Tensor:
    """The (n, width) last hidden states from which the draft would choose each token, had it said `tokens`
    before."""
    prompt = model.prompt(draft.question, model.encode(draft.images))
    inputs = torch.cat([prompt.embeds, model.words(tokens).embeds])
    hidden = model.body(inputs_embeds=inputs[None]).last_hidden_state[0]
    return hidden[-len(tokens) - 1 : -1]


def extract(
    extractor: PairExtractor | TaughtExtractor,
    windows: Iterable[Window],
    folder: Path,
    count: int,
    progress: Callable[[int], None] = lambda done: None,
    of: Mapping[str, Any] = MappingProxyType({}),
) -> PairShards:
    """Ask about the first `count` of the windows; an interrupted call goes on where it stopped.

    `of` identifies models and windows. Raises InputError where `folder` holds those of others, or of another
    question.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = Sizes.of(extractor.pair.target, extractor.pair.draft)
    identity = {"sizes": vars(sizes), "question": extractor.question, "of": dict(of)}
    index = folder / _INDEX
    if index.exists() and read_json(index) != json.loads(json.dumps(identity)):
        raise InputError(
            f"'{folder}' holds paired states of other models or windows, or of another question: name "
            f"another --work folder"
        )
    replace_file(index, json.dumps(identity).encode())
    for i, window in enumerate(islice(windows, count)):
        file = folder / f"window-{i:06d}.safetensors"
        if not file.exists():
            with replacing(file) as scratch:
                save_file(extractor(window), scratch)
            progress(i + 1)
    return PairShards(folder, count)


class PairShards:
    """The windows in a folder, a file each; tensors are read on demand."""

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder = folder
        index = folder / _INDEX
        if not index.is_file():
            raise InputError(f"'{folder}' holds no paired states: run crossspec train heads")
        self.identity = read_json(index)
        """Identity of these windows and models."""
        self._windows: list[Any] = []
        for file in sorted(folder.glob("window-*.safetensors"))[:count]:
            try:
                self._windows.append(safe_open(file, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise InputError(f"'{file}' is damaged ({error}): remove it, it is made anew") from error

    def __len__(self) -> int:
        return len(self._windows)

    def ids(self) -> set[int]:
        """Token ids of questions and captions."""
        names = "question", "tokens"
        return {token for one in self._windows for name in names for token in one.get_tensor(name).tolist()}

    def rows_with(self, names: frozenset[str]) -> list[int]:
        """The windows that have all of these; InputError where none do."""
        rows = [row for row, one in enumerate(self._windows) if names <= set(one.keys())]
        if not rows:
            raise InputError(
                f"no window in '{self.folder}' has what this head learns from ({', '.join(sorted(names))}): "
                f"it needs an event draft that speaks the target's tokens, and recordings with events"
            )
        return rows

    def batch(self, rows: Sequence[int], device: torch.device | str = "cpu") -> Pairs:
        """These windows side by side."""
        windows = [self._windows[row] for row in rows]
        names = set.intersection(*(set(one.keys()) for one in windows))
        found = {name: [one.get_tensor(name).to(device) for one in windows] for name in names}

        def padded(name: str, value: float = 0.0) -> Tensor | None:
            if name not in found:
                return None
            return pad_sequence([_number(tensor) for tensor in found[name]], True, value)

        def needed(name: str, value: float = 0.0) -> Tensor:
            tensor = padded(name, value)
            assert tensor is not None
            return tensor

        frames = needed("frames")
        lengths = torch.tensor([len(tensor) for tensor in found["frames"]], device=frames.device)
        longest = int(np.argmax([len(tensor) for tensor in found["frames"]]))
        return Pairs(
            tokens=needed("tokens", IGNORED),
            question=_number(found["question"][0]),
            states=frames[:, :0] if "states" not in found else needed("states"),
            taps=frames[:, :0] if "taps" not in found else needed("taps"),
            frames=frames,
            frames_seen=torch.arange(frames.shape[1], device=frames.device)[None] < lengths[:, None],
            units=tuple(found["units"][longest].tolist()),
            draft_states=padded("draft_states"),
            draft_tokens=padded("draft_tokens", IGNORED),
        )


def _number(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor.long()
