"""All samples that `fuzz files` spoils."""

from __future__ import annotations

from crossspec_ros.fuzz.own_samples import OWN
from crossspec_ros.fuzz.recording_samples import RECORDINGS

SAMPLES = RECORDINGS | OWN
NEEDS_TORCH = (
    "draft head",
    "EAGLE-3 head",
    "Medusa heads",
    "adapter",
    "hand-off",
    "stored drafts",
    "weights",
    "weights, safetensors",
    "weights, shards",
)
"""The others are read by a process without torch, whose memory tells more."""
