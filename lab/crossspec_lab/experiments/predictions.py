"""What the research behind this project predicted, and what it had measured itself.

"P" was predicted and never run; "M" was measured by its authors on an RTX 4090 with 4-bit models over DSEC.
Figures only; where two runs of theirs disagree both stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """One published figure: what it is, its value as it was written, whether it was measured ("M") or
    predicted ("P"), and the `key` of our own figure that stands beside it, in this `unit`."""

    what: str
    published: str
    kind: str
    key: str
    unit: str = ""


def _frames() -> list[Prediction]:
    found = []
    for frames, head, ours in (
        (1, "1.0", "0.9"),
        (8, "2.5", "3.0"),
        (16, "2.5", "3.5"),
        (32, "2.5", "4.0"),
        (64, "2.5", "4.5"),
    ):
        found.append(
            Prediction(f"speed-up of SpecVLM at {frames} frames", f"{head}x", "P", f"specvlm_{frames}", "x")
        )
        found.append(
            Prediction(
                f"speed-up of the cross-modal decoder at {frames} frames",
                f"{ours}x",
                "P",
                f"ours_{frames}",
                "x",
            )
        )
    return found


def _stages() -> list[Prediction]:
    rows = {
        "frame_encode": ("RGB encoding", "80", "80"),
        "event_encode": ("event encoding", "-", "8"),
        "compress": ("compression", "15", "-"),
        "draft": ("drafting", "25", "60"),
        "verify": ("verification", "20", "20"),
        "total": ("total", "140", "100"),
        "hidden": ("hidden", "0", "48"),
    }
    return [
        Prediction(f"{name} of {way} at 16 frames", f"{value} ms", "P", f"{key}_{stage}", "ms")
        for stage, (name, *values) in rows.items()
        for way, key, value in zip(
            ("SpecVLM", "the cross-modal decoder"), ("specvlm", "ours"), values, strict=True
        )
        if value != "-"
    ]


def _alignment() -> list[Prediction]:
    predicted = {
        "none": ("none", "15-25 % (1.2x)"),
        "linear": ("linear probe", "35-45 % (2.0x)"),
        "mlp": ("MLP", "50-60 % (2.8x)"),
        "contrastive": ("contrastive", "60-70 % (3.2x)"),
        "distilled": ("distilled", "70-80 % (3.8x)"),
        "specvlm": ("SpecVLM, for comparison", "75-85 % (2.7x)"),
    }
    found = [
        Prediction(f"tokens accepted with alignment: {name}", value, "P", key, "%")
        for key, (name, value) in predicted.items()
    ]
    return [
        *found,
        Prediction("tokens accepted, untrained", "1.24 % (another run 1.58 %)", "M", "none", "%"),
        Prediction("tokens accepted, with TokenAdapter", "27.9 %", "M", "token_adapter", "%"),
        Prediction("the same, top 5", "51.6 %", "M", "token_adapter_top5", "%"),
        Prediction("ceiling of tokens accepted with an adapter on the draft", "about 50 %", "P", "best", "%"),
        Prediction("cosine of states, none to adapter", "0.648 to 0.883", "M", "cosine"),
        Prediction(
            "states above 0.8 / 0.85 / 0.9 with an adapter", "86.8 / 76.7 / 54.3 %", "M", "accept_states"
        ),
    ]


def _streaming() -> list[Prediction]:
    rows = {
        "latency_mean": ("mean latency", "ms", "45 ms", "28 ms"),
        "dropped": ("dropped", "%", "35 %", "5 %"),
        "sustained": ("frames sustained a second", "", "22", "35"),
        "latency_p99": ("99th percentile of latency", "ms", "80 ms", "45 ms"),
    }
    return [
        Prediction(f"{name}, {way}, at 30 frames a second", value, "P", f"{key}_{figure}", unit)
        for figure, (name, unit, *values) in rows.items()
        for way, key, value in zip(
            ("SpecVLM", "the cross-modal decoder"), ("specvlm", "ours"), values, strict=True
        )
    ]


def _quality() -> list[Prediction]:
    rows = {
        "bleu4": ("BLEU-4", "32.1", "31.8", "32.0"),
        "rouge_l": ("ROUGE-L", "54.3", "53.9", "54.2"),
        "cider": ("CIDEr", "98.2", "97.5", "98.0"),
        "accuracy": ("VQA accuracy, here attributes right, in %,", "71.2", "70.8", "71.0"),
    }
    names = ("the baseline", "SpecVLM", "the cross-modal decoder")
    return [
        Prediction(f"{name} of {way}", value, "P", f"{key}_{figure}")
        for figure, (name, *values) in rows.items()
        for way, key, value in zip(names, ("alone", "specvlm", "ours"), values, strict=True)
    ]


def _ablations() -> list[Prediction]:
    lengths = (
        (4, "85 % (3.4 tokens)"),
        (8, "72 % (5.8)"),
        (12, "65 % (7.8, best)"),
        (16, "55 % (8.8)"),
        (24, "40 % (9.6)"),
    )
    return [
        Prediction("parallel sooner than sequential, at 16 frames", "40-60 ms", "P", "parallel_gain"),
        *(
            Prediction(f"accepted with a draft of {g} tokens", value, "P", f"gamma_{g}")
            for g, value in lengths
        ),
        Prediction("parallel prefill, then autoregressive, 50 tokens", "-8.6 %", "P", "hiding_gain"),
        Prediction("end to end with the best adapter", "1.02x mean, 1.24x peak", "M", "hiding_speed"),
    ]


def _device() -> list[Prediction]:
    rows = {"busy": ("device busy", "65 %", "85 %"), "bandwidth": ("memory bandwidth used", "70 %", "90 %")}
    return [
        Prediction(f"{name}, {way}", value, "P", f"{key}_{figure}")
        for figure, (name, *values) in rows.items()
        for way, key, value in zip(
            ("SpecVLM", "the cross-modal decoder"), ("specvlm", "ours"), values, strict=True
        )
    ]


def _formulae() -> list[Prediction]:
    return [
        Prediction("prefill share of the target, 8 frames, 5 tokens", "80.6 %", "M", "prefill_share"),
        Prediction("free window, draft tokens", "26 (373 ms) or 27 (502 ms)", "P", "free_tokens"),
        Prediction("expected tokens at a = 0.279, g = 5", "1.39", "P", "expected_tokens"),
        Prediction("speed-up there, c = 0.93", "0.24x", "P", "speed_up"),
        Prediction("break-even acceptance there", "above 0.95", "P", "break_even"),
    ]


PREDICTIONS: Mapping[int, list[Prediction]] = {
    1: _frames(),
    2: [*_stages(), *_formulae()],
    3: _alignment(),
    4: _streaming(),
    5: _quality(),
    6: _ablations(),
    7: _device(),
}
"""By experiment."""
