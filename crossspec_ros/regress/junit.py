"""The checks as JUnit XML, which CI systems show: a test case for each check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from crossspec_ros.regress.difference import Check


def junit(name: str, checks: Sequence[Check]) -> bytes:
    """An XML document with one test suite, named `name`."""
    found = Counter(check.outcome for check in checks)
    counts = {"tests": str(len(checks)), "failures": str(found["failed"]), "errors": "0"}
    counts |= {"skipped": str(found["skipped"])}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"crossspec regress {name}"} | counts)
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname=f"crossspec.{name}", name=check.name)
        if check.differences:
            what = ", ".join(dict.fromkeys(difference.what for difference in check.differences))
            failure = ElementTree.SubElement(case, "failure", message=what)
            failure.text = "\n".join(map(str, check.differences))
        elif check.outcome == "skipped":
            ElementTree.SubElement(case, "skipped", message=check.note)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
