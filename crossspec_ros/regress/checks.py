"""Checks of a replay. Their differences become lines, a verdict and JUnit XML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from xml.etree import ElementTree

from crossspec_ros.errors import plain_text


@dataclass(frozen=True)
class Difference:
    """A difference of `what` at `where`, such as "caption" in "window 3-4 s".

    Its string is one readable line, in which control characters of captions and files are escaped.
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
    """A comparison. It passed if it has no differences."""

    name: str
    differences: list[Difference] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """Either failed or passed."""
        return "failed" if self.differences else "passed"


def verdict(checks: Sequence[Check]) -> str:
    """Return a line with the number of failed checks."""
    failed = sum(bool(check.differences) for check in checks)
    return f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks passed"


def marked(
    expected: str,
    actual: str,
    removed: Callable[[str], str] = "[-{}-]".format,
    added: Callable[[str], str] = "{{+{}+}}".format,
    common: Callable[[str], str] = str,
) -> str:
    """Return both sentences merged into one, with marks around different words."""
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
    """Return an XML document with one test suite of this name, for CI."""
    name, failed = _xml_text(name), sum(bool(check.differences) for check in checks)
    counts = {"tests": str(len(checks)), "failures": str(failed), "errors": "0", "skipped": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"crossspec regress {name}"} | counts)
    for check in checks:
        called = _xml_text(check.name)
        case = ElementTree.SubElement(suite, "testcase", classname=f"crossspec.{name}", name=called)
        if check.differences:
            what = ", ".join(dict.fromkeys(difference.what for difference in check.differences))
            failure = ElementTree.SubElement(case, "failure", message=_xml_text(what))
            failure.text = "\n".join(_xml_text(str(difference)) for difference in check.differences)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _xml_text(text: str) -> str:
    """Return the text with escapes for characters that XML forbids."""
    return plain_text(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
