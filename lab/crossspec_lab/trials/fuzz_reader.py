"""Reads files one after the other as the commands do, and tells what became of each; a process of its own.

A line of its input is a format and a path, a line of its output a JSON object.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from copy import deepcopy
from pathlib import Path

from crossspec_lab.compare.peak_memory import begin_peak, status_mb
from crossspec_lab.trials.own_samples import IDENTITY, TINY, tiny_pair
from crossspec_ros.errors import InputError
from crossspec_ros.recordings.info import survey
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.telemetry.memory import resident_mb

_MOST_TOLD = 20_000
_VOCABULARY, _IDS = "a vocabulary", 600
_ROWS = 4000
"""Of the tiny target's embeddings, or more."""


def _play(path: Path) -> None:
    with closing(open_recording(path)) as recording:
        for _ in recording.messages():
            pass


def _memory(path: Path) -> None:
    from crossspec_ros.drafting.memory_file import MemoryFile
    from crossspec_ros.drafting.proposers.memory import CaptionMemory

    MemoryFile(CaptionMemory(), path, _VOCABULARY, _IDS).close()


def _golden(path: Path) -> None:
    from crossspec_ros.regress.checks import junit
    from crossspec_ros.regress.golden import compare, read_golden
    from crossspec_ros.regress.page import Page

    golden = read_golden(path, _AnySetup())  # type: ignore[arg-type]
    checks = compare(golden, golden)
    junit("golden", checks)
    Page().html("golden", [], checks)


class _AnySetup:
    """Of a golden that is of no recording that is here."""

    origin_ns = 0

    def check(self, path: Path, identity: object) -> None:
        """Every identity is right."""


def _parameters(path: Path) -> None:
    from crossspec_ros.captioning.config import read_config

    read_config(path)


def _config(path: Path) -> None:
    from crossspec_ros.models.config_files import read_config

    read_config(path, ["model_type"])


def _folder(path: Path) -> Path:
    """The checkpoint's: some samples are one of its files, some the folder itself."""
    return path if path.is_dir() else path.parent


def _tokenizer(path: Path) -> None:
    from crossspec_ros.models.text_tokenizer import load_tokenizer

    load_tokenizer(_folder(path), _ROWS)


def _tokens(path: Path) -> None:
    from crossspec_ros.serving.options import read_tokens

    read_tokens(path)


def _weights(path: Path) -> None:
    from crossspec_ros.models.checkpoint import stored_tensors

    stored_tensors(_folder(path))


def _head(path: Path) -> None:
    from crossspec_ros.drafting.heads.head_files import load_head

    load_head(path, tiny_pair().target, tiny_pair().draft)


def _adapter(path: Path) -> None:
    from crossspec_lab.heads.draft_lora import merge

    # The draft is changed for good.
    draft = deepcopy(tiny_pair().draft)
    assert draft is not None
    merge(draft, path)


def _handoff(path: Path) -> None:
    from crossspec_lab.handoff.network import load_handoff

    load_handoff(path, tiny_pair().target, tiny_pair().draft)


def _drafts(path: Path) -> None:
    from crossspec_ros.drafting.stored_draft import load_drafts
    from crossspec_ros.models.registry import draft_architecture

    sizes = draft_architecture(TINY / "draft").sizes
    load_drafts(path, IDENTITY, sizes.vocabulary, sizes.width)


_Uses = Sequence[Callable[[Path], object]]
_RECORDING: _Uses = [survey, _play]
_OWN: dict[str, _Uses] = {
    "caption memory": [_memory],
    "golden": [_golden],
    "config": [_config],
    "parameters": [_parameters],
    "tokenizer": [_tokenizer],
    "tokenizer.model": [_tokenizer],
    "tokens of robots": [_tokens],
    "draft head": [_head],
    "EAGLE-3 head": [_head],
    "Medusa heads": [_head],
    "adapter": [_adapter],
    "hand-off": [_handoff],
    "stored drafts": [_drafts],
    "weights": [_weights],
    "weights, safetensors": [_weights],
    "weights, shards": [_weights],
}


def main() -> None:
    """Read what the input names, until it ends."""
    logging.disable()
    if "torch" in sys.argv[1:]:
        tiny_pair()
    print(json.dumps({"idle_mb": resident_mb()}), flush=True)
    for line in sys.stdin:
        name, path = json.loads(line)
        print(json.dumps(result(_OWN.get(name, _RECORDING), Path(path))), flush=True)


def result(uses: _Uses, path: Path) -> dict[str, object]:
    """What became of the worst of all uses of a file, and the longest of their times."""
    begin_peak()
    results, longest_s, children_mb = [("read", "")], 0.0, _children_mb()
    for use in uses:
        began_s = time.monotonic()
        results.append(_outcome(use, path))
        longest_s = max(longest_s, time.monotonic() - began_s)
    outcome, said = max(results, key=lambda result: ("read", "refused", "raised").index(result[0]))
    peak_mb = status_mb("VmHWM")
    # That of children never falls.
    if _children_mb() > children_mb:
        peak_mb = max(peak_mb, _children_mb())
    return {
        "outcome": outcome,
        "said": said[:_MOST_TOLD],
        "seconds": longest_s,
        "peak_mb": peak_mb,
    }


def _children_mb() -> float:
    """The most that any ended child has taken."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _outcome(use: Callable[[Path], object], path: Path) -> tuple[str, str]:
    try:
        use(path)
    except InputError as error:
        return "refused", str(error)
    except BaseException as error:
        return "raised", "".join(traceback.format_exception(error)[-3:])
    return "read", ""


if __name__ == "__main__":
    main()
