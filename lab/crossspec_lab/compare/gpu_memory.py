"""Memory of a GPU that a captioner of both 7B models takes, dtype by dtype, beside what `doctor` estimates.

`python -m crossspec_lab.compare.gpu_memory OUT.json DEVICE DTYPE,DTYPE`; on `cpu` it tries the tiny models.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from crossspec_lab.compare.gpu_models import Dimensions, dimensions_of, random_pair
from crossspec_lab.compare.gpu_shared_passes import milliseconds
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.out_of_memory import free_memory
from crossspec_ros.models.footprint import estimate
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models


def main() -> None:
    """Measure each dtype, and write what there is after it."""
    out, device, dtypes = sys.argv[1:]
    logging.set_verbosity_error()
    like, found = load_pair(tiny_models()), dict[str, Any](torch=torch.__version__)
    for dtype in dtypes.split(","):
        free_memory()
        try:
            found[dtype] = _measured(like, dimensions_of(device == "cpu"), dtype, device)
        except Exception as error:  # one that does not fit hinders no other
            found[dtype] = {"error": f"{error!r:.300}"}
        print(dtype, json.dumps(found[dtype]), flush=True)
        Path(out).write_text(json.dumps(found, indent=1) + "\n")


def _measured(like: ModelPair, dimensions: Dimensions, dtype: str, device: str) -> dict[str, Any]:
    placement, is_gpu = available(dtype, device), device != "cpu"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    estimated = estimate(placement, dimensions.target, dimensions.draft).by_device()
    row: dict[str, Any] = {"estimated_GB": sum(estimated.values()) / 1e9}
    begun_s = time.perf_counter()
    pair = random_pair(like, dimensions, placement)
    row["built_s"] = time.perf_counter() - begun_s
    begun_s = time.perf_counter()
    decoder = speculative_decoder(pair)
    row["warm_s"] = time.perf_counter() - begun_s
    if is_gpu:
        free, total = torch.cuda.mem_get_info()
        row["most_GB"] = torch.cuda.max_memory_allocated() / 1e9
        row["reserved_GB"] = torch.cuda.memory_reserved() / 1e9
        row["used_of_card_GB"] = (total - free) / 1e9
    assert decoder.policy.cost is not None
    row["ms"] = milliseconds(decoder.policy.cost.table())
    decoder.close()
    return row


if __name__ == "__main__":
    main()
