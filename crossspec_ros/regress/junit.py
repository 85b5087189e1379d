"""The checks as JUnit XML, which CI systems show: a test case for each check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from crossspec_ros.plain_text import plain_text
from crossspec_ros.regress.difference import Check


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
