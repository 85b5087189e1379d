"""Write the tiny random checkpoint that the tests make of a family: `python scripts/random_target.py
qwen3_vl FOLDER`. It writes nonsense, but the same as transformers' `generate`.

Some of its tokens end a response, so that responses have all lengths.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

EVERY = 16
"""Number of token ids of which one is an end."""
TESTS = Path(__file__).resolve().parent.parent / "test"


def main() -> None:
    """Write it into a folder that is not there yet."""
    family, folder = sys.argv[1], Path(sys.argv[2])
    sys.path[:0] = [str(TESTS), str(TESTS / "families")]
    import_module(f"test_{family}").checkpoint(folder)
    ids = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"].values()
    generation = folder / "generation_config.json"
    values = json.loads(generation.read_text())
    values["eos_token_id"] += sorted(set(ids))[::EVERY]
    generation.write_text(json.dumps(values, indent=2))
    print(folder)


if __name__ == "__main__":
    main()
