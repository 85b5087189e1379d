"""Breaks the verifier and the tree mask line by line and shows which test notices.

Run with the project's Python; exits with 1 if a mutant survives. The table is kept in
docs/benchmarks/mutants.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("crossspec_ros", "test", "models", "pyproject.toml", "package.xml")
TESTS = (
    "test/engine/test_accept.py",
    "test/engine/test_tree.py",
    "test/engine/test_kv.py",
    "test/engine/test_runner.py",
    "test/engine/test_session.py",
    "test/captioning/test_decoder.py",
)

MUTANTS = {
    "engine/accept.py": [
        ("nodes = [ROOT]", "nodes = [0]"),
        ("tree.child(nodes[-1],", "tree.child(nodes[0],"),
        ("token := choose(nodes[-1])", "token := choose(nodes[0])"),
        ("nodes.append(child)", "nodes.append(child)\n        break"),
        ("return tuple(nodes[1:]), token", "return tuple(nodes), token"),
        ("return tuple(nodes[1:]), token", "return tuple(nodes[1:]), choose(ROOT)"),
        ("choices[1 + node]", "choices[node]"),
        ("choices[1 + node]", "choices[2 + node]"),
        ("choices[1 + node]", "choices[1 + tree.parents[node]]"),
    ],
    "engine/tree.py": [
        ("if pair == (node, token)", "if pair[1] == token"),
        ("if pair == (node, token)", "if pair[0] == node"),
        ("seen = np.eye(len(self), dtype=bool)", "seen = np.zeros((len(self),) * 2, dtype=bool)"),
        ("seen = np.eye(len(self), dtype=bool)", "seen = np.tril(np.ones((len(self),) * 2, dtype=bool))"),
        ("if parent != ROOT:\n                seen", "if parent != 0:\n                seen"),
        ("if parent != ROOT:\n                seen", "if True:\n                seen"),
        ("seen[i] |= seen[parent]", "seen[i, parent] = True"),
        ("seen[i] |= seen[parent]", "seen[parent] |= seen[i]"),
        ("seen[i] |= seen[parent]", "seen[i] = seen[parent]"),
        ("1 if parent == ROOT else depths[parent] + 1", "1 if parent == ROOT else depths[parent]"),
        ("1 if parent == ROOT else depths[parent] + 1", "0 if parent == ROOT else depths[parent] + 1"),
        ("1 if parent == ROOT else depths[parent] + 1", "len(depths) + 1"),
    ],
    "engine/tree.py": [
        ("last = cached + unread - 1", "last = cached + unread"),
        ("*range(cached, last + 1)", "*range(last + 1 - cached)"),
        ("(last + depth for depth in tree.depths())", "(last + 1 + i for i in range(len(tree)))"),
        (".tril(cached)", ".tril(cached + 1)"),
        (".tril(cached)", ".tril(cached - 1)"),
        (".tril(cached)", ""),
        ("seen[unread:, cached + unread :] = torch.from_numpy(tree.mask())", "pass"),
        ("torch.from_numpy(tree.mask())", "torch.from_numpy(tree.mask()).T"),
        ("masked_fill_(~seen,", "masked_fill_(seen,"),
        ("return torch.zeros(seen.shape", "return seen[None, None]\n    return torch.zeros(seen.shape"),
    ],
    "engine/session.py": [
        ("hidden[len(hidden) - len(tree) - 1 :]", "hidden[len(hidden) - len(tree) :]"),
        ("verified = self._reader.length - self._nodes", "verified = self._reader.length - self._nodes - 1"),
        ("[verified + node for node in path]", "[verified + i for i in range(len(path))]"),
        ("[verified + node for node in path]", "[verified + node for node in path[:-1]]"),
        ("self._embed([next_token])", "self._embed([next_token + 1])"),
        ("        self._unread = self._unread[:0]\n        mask", "        mask"),
        ("self._reader.keep(self._prefix)", "pass"),
        ("self._prefix = self._reader.length + self.unread", "self._prefix = self._reader.length"),
    ],
    "drafting/policy.py": [
        (".cut(left - 1)", ".cut(left)"),
        (".cut(left - 1)", ""),
    ],
    "engine/kv.py": [
        ("if list(moved) != list(range(length, end)):", "if False:"),
        ("self._states.index_select(3, places)", "self._states[..., : len(moved), :]"),
        ("places)\n        self.length = end", "places)\n        self.length = length"),
        ("states[..., : self.length, :] = self._states[..., : self.length, :]", "pass"),
        (
            "for layer in self._buffers:\n            layer.length",
            "for layer in self._buffers[:1]:\n            layer.length",
        ),
        ("values[:, :, start:end] = value_states", "pass"),
    ],
    "engine/runner.py": [
        ("last = self._cache.capacity - 1", "last = length"),
        ("self._cache.length += len(inputs)", "self._cache.length += size"),
        ("padded[:, :, :n, :all_seen] = mask", "padded[:, :, :n, :all_seen] = 0"),
        ("self._steps.clear()", "pass"),
        ("        reader.keep(0)\n        return reader", "        return reader"),
        ("reader.is_sound and reader.capacity", "reader.capacity"),
        (" and reader.capacity <= self._capacity", ""),
    ],
    "captioning/decoder.py": [
        ("new[: new.index(self.pair.eos_id) + 1]", "new[: new.index(self.pair.eos_id)]"),
        ("session.commit(path, following)", "session.commit(path[:-1], following)"),
        ("for node in path), following]", "for node in path)] or [following]"),
        ("not _begins_with(window.frames, session.frames)", "False"),
        ("window.frames[len(session.frames) :]", "window.frames"),
    ],
}


def main() -> int:
    print("| file | line | mutant | noticed by |\n| --- | --- | --- | --- |")
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in NEEDED:
            here = ROOT / name
            (shutil.copytree if here.is_dir() else shutil.copy)(here, copy / name)
        assert _first_failure(copy) is None, "the tests fail as they are"
        for name, changes in MUTANTS.items():
            path = copy / "crossspec_ros" / name
            source = path.read_text()
            for old, new in changes:
                assert old in source, f"{name} has no {old!r} any more"
                path.write_text(source.replace(old, new, 1))
                killer = _first_failure(copy)
                path.write_text(source)
                survivors += killer is None
                line = source[: source.index(old)].count("\n") + 1
                row = f"`{_shown(old)}` -> `{_shown(new)}` | {killer or '**nothing**'}"
                print(f"| `{name}` | {line} | {row} |", flush=True)
    return 1 if survivors else 0


def _shown(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "(nothing)"


def _first_failure(folder: Path) -> str | None:
    options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout", "40"]
    # A loop without end is ended with its process.
    options += ["--timeout-method", "thread"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *TESTS],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        return None
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return f"`{failed[0].split('::')[-1].split(' - ')[0]}`" if failed else "tests that hang"


if __name__ == "__main__":
    sys.exit(main())
