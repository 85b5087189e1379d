"""How much sooner ours is than the target alone, for several targets in one run: `python
lab/scripts/compare_targets.py FIGURES.json WINDOWS TARGET...`. Each TARGET is a folder of a tiny target.

Every target's decoders take turns on the same windows, so that a machine that drifts favours none.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from crossspec_lab.compare.harness import Decoder, ratio, spread, table, take_turns
from crossspec_lab.compare.held_out import held_out_windows
from crossspec_lab.compare.latency import begun_at_last_frame, captions, lived
from rich.progress import track

from crossspec_ros.captioning.assembly import autoregressive_decoder, speculative_decoder
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def main() -> None:
    """Measure, print a table and write the figures."""
    out, count, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    tiny = share_dir() / "models" / "tiny"
    pairs = {name: load_pair(tiny, target=name) for name in names}
    sizes = {(pair.frames, pair.frame_size) for pair in pairs.values()}
    if len(sizes) > 1:
        raise SystemExit(f"the targets look at windows of several shapes ({sizes}): compare tiny ones")
    windows = [window for window, _ in held_out_windows(pairs[names[0]], count)]
    with ExitStack() as stack:
        decoders: dict[str, Decoder[Window]] = {}
        for name, pair in pairs.items():
            ours, alone = (
                stack.enter_context(closing(make(pair)))
                for make in (speculative_decoder, autoregressive_decoder)
            )
            decoders[f"{name} ours"] = lived(ours)
            decoders[f"{name} alone"] = begun_at_last_frame(captions(alone))
        for decoder in decoders.values():
            decoder(windows[0], Trace())
        runs = take_turns(decoders, track(windows, "captioning in real time"))
    figures = {}
    for name in names:
        mine, than = runs[f"{name} ours"], runs[f"{name} alone"]
        passes = sum(span.stage in ("verify", "decode") for trace in mine.traces for span in trace.spans)
        figures[name] = {
            "close_to_caption_ms": spread(mine.ms()),
            "close_to_caption_ratio": ratio(than.ms(), mine.ms()),
            "last_frame_to_caption_ms": spread(mine.ms_from_last_frame()),
            "last_frame_to_caption_ratio": ratio(than.ms_from_last_frame(), mine.ms_from_last_frame()),
            "target_alone_ms": spread(than.ms_from_last_frame()),
            # The first pass of a caption reads the question.
            "tokens_per_pass": sum(map(len, mine.tokens)) / (len(mine.tokens) + passes),
            "equal": sum(a == b for a, b in zip(mine.tokens, than.tokens, strict=True)),
        }
    print(table(f"{count} windows, median (10th-90th percentile); ratio: alone / ours", figures))
    out.write_text(json.dumps({"windows": count, "targets": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
