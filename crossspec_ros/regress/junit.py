"""The checks as JUnit XML, which CI systems show: a test case for each check."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from crossspec_ros.regress.difference import Check


def junit(name: str, checks: Sequence[Check]) -> bytes:
    """An XML document with one test suite, named `name`."""
    failed = sum(bool(check.differences) for check in checks)
    counts = {"tests": str(len(checks)), "failures": str(failed), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"crossspec regress {name}"} | counts)
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname=f"crossspec.{name}", name=check.name)
        if check.differences:
            what = ", ".join(dict.fromkeys(difference.what for difference in check.differences))
            failure = ElementTree.SubElement(case, "failure", message=what)
            failure.text = "\n".join(map(str, check.differences))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
