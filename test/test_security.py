"""config/security/ allows every node what it does by docs/reference/topics.md, and nothing else."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

import pytest

from crossspec_ros.settings import NODES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import security_policies as security  # noqa: E402


def allowed():
    """The names in the file by enclave and by what is allowed."""
    found: dict[str, dict[str, set[str]]] = {}
    for enclave in ElementTree.parse(security.POLICIES).iter("enclave"):
        rules = found.setdefault(enclave.attrib["path"], {})
        for expressions in (each for profile in enclave.iter("profile") for each in profile):
            ((what, verdict),) = expressions.attrib.items()
            assert verdict == "ALLOW"
            node = enclave.attrib["path"].rpartition("/")[2]
            names = {(each.text or "").replace("~", f"/{node}") for each in expressions}
            rules.setdefault(what, set()).update(names)
    return found


def test_the_file_is_that_of_the_tables():
    assert security.POLICIES.read_text() == security.policies(), "run scripts/security_policies.py"


def test_nodes_and_driver_have_their_own_enclaves():
    named = {path.removeprefix(f"{security.ENCLAVES}/") for path in allowed()}
    assert named == {*NODES, security.DRIVER, security.OPERATOR}


def may(enclave, what, name):
    return any(fnmatchcase(name, one) for one in allowed()[f"{security.ENCLAVES}/{enclave}"].get(what, ()))


@pytest.mark.parametrize(
    ("out", "into", "topics"),
    [
        ("synchronizer", "captioner", ["/synchronizer/frame", "/synchronizer/window_closed"]),
        ("captioner", "dsec_player", ["/captioner/report"]),
        ("dsec_player", "synchronizer", ["/event_camera/events", "/camera/image_raw/compressed", "/clock"]),
        ("dv_camera", "synchronizer", ["/event_camera/events"]),
        ("event_camera", "synchronizer", ["/event_camera/events"]),
        ("captioner", "operator", ["/captioner/caption", "/captioner/latency/total", "/diagnostics"]),
    ],
)
def test_published_topics_have_permitted_readers(out, into, topics):
    for topic in topics:
        assert may(out, "publish", topic) and may(into, "subscribe", topic)


def test_hijacked_node_speaks_for_no_other():
    for node in NODES:
        others = [*NODES, "somebody"]
        others.remove(node)
        for other in others:
            assert not may(node, "publish", f"/{other}/caption")
            assert not may(node, "reply", f"/{other}/ask") and not may(node, "request", f"/{other}/ask")
    assert not may("operator", "publish", "/captioner/caption")


def test_people_may_use_whatever_our_nodes_offer():
    for node in NODES:
        for service in ("set_parameters", "change_state"):
            assert may("operator", "request", f"/{node}/{service}")
    assert not may("operator", "request", "/somebody/set_parameters")
    for name in ("/_ros2cli_77/get_type_description", "/rqt_gui_py_node_77/set_parameters"):
        assert may("operator", "reply", name)


def test_permissions_fit_into_the_handshake():
    """By what six files took that SROS2 signed: 2.7 kB, and so much for each name; 2.1 kB are not theirs."""
    for rules in allowed().values():
        size = sum(
            30 + len(name) if what in ("publish", "subscribe") else 72 + 2 * len(name)
            for what, names in rules.items()
            for name in names
        )
        # Room for longer names, as in a namespace.
        assert size + 2_700 + 2_100 < 0.9 * 8192
