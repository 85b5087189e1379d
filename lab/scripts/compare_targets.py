"""How much sooner ours is than the target alone, for several targets in one run: `python
lab/scripts/compare_targets.py FIGURES.json WINDOWS TARGET...`. Each TARGET is a folder of a tiny target.

Every target's decoders take turns on the same windows, so that a machine that drifts favours none.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.compare.harness import compared, table, take_turns, tokens_per_pass
from crossspec_lab.compare.held_out import held_out_windows, timed
from rich.progress import track

from crossspec_ros.captioning.assembly import autoregressive_decoder, speculative_decoder
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace


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
        decoders = {}
        for name, pair in pairs.items():
            decoders[f"{name} ours"] = timed(speculative_decoder(pair), stack)
            decoders[f"{name} alone"] = timed(Whole(autoregressive_decoder(pair)), stack)
        for decoder in decoders.values():
            decoder(windows[0], Trace())
        runs = take_turns(decoders, track(windows, "captioning in real time"))
    figures = {}
    for name in names:
        both = {who: runs[f"{name} {who}"] for who in ("ours", "alone")}
        ours, alone = compared(both, "alone").values()
        figures[name] = {
            "close_to_caption_ms": ours["caption_ms"],
            "close_to_caption_ratio": ours["close_to_caption_ratio"],
            "last_frame_to_caption_ms": ours["last_frame_to_caption_ms"],
            "last_frame_to_caption_ratio": ours["last_frame_to_caption_ratio"],
            "target_alone_ms": alone["last_frame_to_caption_ms"],
            "tokens_per_pass": tokens_per_pass(both["ours"]),
            "equal": ours["equal"],
        }
    print(table(f"{count} windows, median (10th-90th percentile); ratio: alone / ours", figures))
    out.write_text(json.dumps({"windows": count, "targets": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
