"""Breaks the verifier and the tree mask line by line and shows which test notices.

Run with the project's Python; prints a table, and exits with 1 if a mutant survives. Names of files, as
below, leave out the others.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("crossspec_ros", "lab", "test", "models", "conftest.py", "pyproject.toml", "package.xml")
TESTS = (
    "test/engine/test_tree.py",
    "test/engine/test_runner.py",
    "test/engine/test_sequence.py",
    "test/engine/test_scheduler.py",
    "test/captioning/test_answer.py",
    "test/captioning/test_decoder.py",
    "test/families/test_every_family.py",
)

MUTANTS = {
    "engine/accept.py": [
        ("choices[1 + node]", "choices[node]"),
        ("choices[1 + node]", "choices[2 + node]"),
        ("choices[1 + node]", "choices[1 + tree.parents[node]]"),
        ("self._draws[0] != sampling.seed", "False"),
    ],
    "engine/tree.py": [
        ("nodes = [ROOT]", "nodes = [0]"),
        ("tree.child(nodes[-1],", "tree.child(nodes[0],"),
        ("token := choose(nodes[-1])", "token := choose(nodes[0])"),
        ("nodes.append(child)", "nodes.append(child)\n        break"),
        ("return tuple(nodes[1:]), token", "return tuple(nodes), token"),
        ("return tuple(nodes[1:]), token", "return tuple(nodes[1:]), choose(ROOT)"),
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
        ("nodes, cached, bool)", "nodes, cached + 1, bool)"),
        ("nodes, cached, bool)", "nodes, cached - 1, bool)"),
        ("seen[unread:, cached + unread :] = tree.mask()", "pass"),
        ("= tree.mask()", "= tree.mask().T"),
    ],
    "engine/sequence.py": [
        ("output.hidden[-nodes - before :]", "output.hidden[-nodes - before - 1 :]"),
        ("verified = self._row.length - len(tree)", "verified = self._row.length - len(tree) - 1"),
        ("[verified + node for node in path]", "[verified + i for i in range(len(path))]"),
        ("[verified + node for node in path]", "[verified + node for node in path[:-1]]"),
        ("self._target.words((following,))", "self._target.words((following + 1,))"),
        ("self._place += len(path)", "pass"),
        ("self._place += len(path)", "self._place += len(tree)"),
        ("[depth - 1 for depth in", "[depth for depth in"),
        ("self._unread, self._place = [], place", "self._place = place"),
        ("self._unread, self._place = [], place", "self._unread = []"),
        (
            "            self._row.keep(length)\n            self._unread.clear()",
            "            self._unread.clear()",
        ),
        ("length, self._place = self._prefix", "length, _ = self._prefix"),
        ("self._unread.pop()  #", "pass  #"),
        ("self._stamps != list(stamps_ns[: len(self._stamps)])", "False"),
        ("            self._row.clear()\n            self._begin()", "            self._begin()"),
        ("self._waiting.extend(frames[missing:])", "self._waiting.extend(frames)"),
        ("self._features.get(known) if is_known else None", "None"),
        ("not self._row.is_sound", "False"),
        ("tokens[: eos + 1]", "tokens[:eos]"),
        ("*(before + node for node in path)", "*path"),
        ("self._encode(len(self._waiting))", "self._encode(0)"),
        ("still waits.\n        del self._waiting[:count]", "still waits."),
        ("self._stamps.clear()\n        self._waiting.clear()", "self._stamps.clear()"),
        ("len(self._waiting) // per_unit * per_unit", "0"),
        ("(begin + unit[0]) // per_unit", "begin + unit[0]"),
    ],
    "engine/local.py": [
        ("            self._error = None\n            yield", "            yield"),
        ("            raise self._error\n", "            pass\n"),
        ("self.rest()\n        for future", "for future"),
    ],
    "engine/scheduler.py": [
        ("len(self.ahead) > 1:", "True:"),
        ("is_between and len(self.ahead) > 1", "is_between"),
        ("is_between and len(self.ahead) > 1", "len(self.ahead) > 1"),
        ("if of in self._answering:", "if True:"),
        ("self._is_between = any(", "self._is_between = True or any("),
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
        ("self._states.zero_()", "pass"),
        ("values[:, :, self._begin :] = value_states", "pass"),
    ],
    "engine/model_runner.py": [
        ("at = torch.full(shape, capacity - 1)", "at = torch.full(shape, 0)"),
        ("reading.row.length = reading.end", "reading.row.length += 1"),
        ("mask[i, :, :n, : reading.end] = additive(reading.sees, dtype)[0]", "mask[i, :, :n] = 0"),
        ("torch.from_numpy(~sees)", "torch.from_numpy(sees)"),
        ("row.is_pooled and reading.end < self._capacity and", "reading.end < self._capacity and"),
        ("            row.keep(0)\n", ""),
        ("        row.clear()\n", ""),
    ],
    "captioning/answer.py": [
        ("self.tokens += step.tokens", "self.tokens += step.tokens[:1]"),
        ("step.ended or len(self.tokens)", "len(self.tokens)"),
        ("left = self.max_new_tokens - len(self.tokens)", "left = self.max_new_tokens"),
        ("if more() and not self.ended:", "if not self.ended:"),
        ("if more() and not self.ended:", "if more():"),
        ("over.set_exception(error)", "over.set_result(None)"),
        ("taken = step.path[: len(step.tokens)]", "taken = step.path"),
        ("replace(self._lesson, ended=True)", "self._lesson"),
    ],
    "captioning/decoder.py": [
        ("and opened.answered_ns == stamps_ns", ""),
        ("(answer.question, answer.max_new_tokens) == (question, self.max_new_tokens)", "True"),
        ("and answer.sampling == self.sampling", ""),
        ("            opened.session.fit(frames, stamps_ns)", "            pass"),
        ("self._lesson = answer.take_lesson()", "pass"),
        ("            opened.rest()\n            opened.forget()", "            pass"),
    ],
    "models/base.py": [
        ("place + chunk.positions for place", "chunk.positions for place"),
        ("int(self.positions.max()) + 1", "len(self)"),
        ("chunk._layers_like(like) for chunk", "like for chunk"),
    ],
    "captioning/open_windows.py": [
        ("stamp_ns <= opened.stamps_ns[-1]", "False"),
        ("session.close()", "pass"),
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
        for name in sys.argv[1:] or MUTANTS:
            path = copy / "crossspec_ros" / name
            source = path.read_text()
            for old, new in MUTANTS[name]:
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
