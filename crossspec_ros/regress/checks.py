"""Checks of a replay: what differs, as lines, as a verdict and as JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from xml.etree import ElementTree

from crossspec_ros.plain_text import plain_text


@dataclass(frozen=True)
class Difference:
    """`what` differs at `where`, as in "caption" of "window 3-4 s"; as a string it is one readable line.

    What it quotes of captions and files is made harmless for logs, terminals and XML.
    """

    where: str
    what: str
    expected: str
    actual: str

    def __str__(self) -> str:
        if self.what == "caption":
            return plain_text(f"{self.where}: caption: {marked(self.expected, self.actual)}")
        return plain_text(f"{self.where}: {self.what}: expected {self.expected}, is {self.actual}")


@dataclass(frozen=True)
class Check:
    """Something that was to be compared; `note` says how it came out.

    Without differences it passed, unless it is `empty`: then nothing was there to be compared.
    """

    name: str
    differences: list[Difference] = field(default_factory=list)
    note: str = ""
    empty: bool = False

    @property
    def outcome(self) -> str:
        """One of failed, skipped, passed."""
        return "failed" if self.differences else "skipped" if self.empty else "passed"


def verdict(checks: Sequence[Check]) -> str:
    """One line: how many failed, or that all passed, and how many of them compared nothing."""
    count = Counter(check.outcome for check in checks)
    failed, passed, skipped = (count[outcome] for outcome in ("failed", "passed", "skipped"))
    told = f"{failed} of {len(checks)} checks failed" if failed else f"all {passed} checks passed"
    return told + (f", {skipped} skipped because there was nothing to compare" if skipped else "")


def all_differences(checks: list[Check]) -> list[Difference]:
    """The differences of all checks, in order."""
    return [difference for check in checks for difference in check.differences]


def marked(
    expected: str,
    actual: str,
    removed: Callable[[str], str] = "[-{}-]".format,
    added: Callable[[str], str] = "{{+{}+}}".format,
    common: Callable[[str], str] = str,
) -> str:
    """Merge both sentences into one, each run of words in the marks of its kind."""
    old, new = expected.split(), actual.split()
    parts: list[str] = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(common(" ".join(old[i:j])))
        else:
            runs = ((removed, old[i:j]), (added, new[k:m]))
            parts += [mark(" ".join(words)) for mark, words in runs if words]
    return " ".join(parts)


def junit(name: str, checks: Sequence[Check]) -> bytes:
    """An XML document with one test suite, named `name`; characters that XML cannot have are written out."""
    name = _xml_text(name)
    found = Counter(check.outcome for check in checks)
    counts = {"tests": str(len(checks)), "failures": str(found["failed"]), "errors": "0"}
    counts |= {"skipped": str(found["skipped"])}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"crossspec regress {name}"} | counts)
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"crossspec.{name}", name=_xml_text(check.name)
        )
        if check.differences:
            what = ", ".join(dict.fromkeys(difference.what for difference in check.differences))
            failure = ElementTree.SubElement(case, "failure", message=_xml_text(what))
            failure.text = "\n".join(_xml_text(str(difference)) for difference in check.differences)
        elif check.outcome == "skipped":
            ElementTree.SubElement(case, "skipped", message=_xml_text(check.note))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _xml_text(text: str) -> str:
    return plain_text(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
