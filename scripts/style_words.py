#!/usr/bin/env python3
"""List words of the style sheet that remain in names and prose, with file and line, and count them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

WORDS = ("told", "tells?", "said", "says?", "asked", "nobody", "whoever", "those that", "what is", "is none")
FOLDERS = ("crossspec_ros", "lab", "launch", "scripts", "test", "docs", "models", "*.md")
_CAPITALS = "|".join(f"[{word[0].upper()}{word[0]}]{word[1:]}" for word in WORDS)
# Words are found in parts of a name, too. "is None" in code is not "is none".
_FOUND = re.compile(rf"(?<![A-Za-z])({_CAPITALS})(?![a-z])")


def main() -> None:
    """Print the words that remain."""
    listed = subprocess.run(["git", "ls-files", *FOLDERS], capture_output=True, text=True, check=True)
    count = 0
    for name in listed.stdout.split():
        if not name.endswith((".py", ".md")) or "_pb2" in name or name == "scripts/style_words.py":
            continue
        for number, line in enumerate(Path(name).read_text().splitlines(), 1):
            for match in _FOUND.finditer(line):
                count += 1
                print(f"{name}:{number}: {match[0]}: {line.strip()}")
    print(f"{count} words")


if __name__ == "__main__":
    main()
