"""Write the tiny random checkpoint that the tests make of a family: `python scripts/random_target.py
qwen3_vl FOLDER`. It says nothing sensible, but it says it as transformers' `generate` does."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "test"


def main() -> None:
    """Write it into a folder that is not there yet."""
    family, folder = sys.argv[1], Path(sys.argv[2])
    sys.path[:0] = [str(TESTS), str(TESTS / "families")]
    import_module(f"test_{family}").checkpoint(folder)
    print(folder)


if __name__ == "__main__":
    main()
