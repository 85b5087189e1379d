"""config/security/ allows each node the topics and services of docs/reference/topics.md only."""

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
    """Return the names in the file by enclave and permission."""
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


def test_policies_match_the_tables():
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
        ("usb_camera", "synchronizer", ["/event_camera/events", "/camera/image_raw"]),
        ("event_camera", "synchronizer", ["/event_camera/events"]),
        ("captioner", "operator", ["/captioner/caption", "/captioner/latency/total", "/diagnostics"]),
    ],
)
def test_published_topics_have_permitted_readers(out, into, topics):
    for topic in topics:
        assert may(out, "publish", topic) and may(into, "subscribe", topic)


def test_hijacked_node_cannot_act_as_another():
    for node in NODES:
        others = [*NODES, "other"]
        others.remove(node)
        for other in others:
            assert not may(node, "publish", f"/{other}/caption")
            assert not may(node, "reply", f"/{other}/ask") and not may(node, "request", f"/{other}/ask")
    assert not may("operator", "publish", "/captioner/caption")


def test_operator_may_use_all_nodes():
    for node in NODES:
        for service in ("set_parameters", "change_state"):
            assert may("operator", "request", f"/{node}/{service}")
    assert not may("operator", "request", "/other/set_parameters")
    for name in ("/_ros2cli_77/get_type_description", "/rqt_gui_py_node_77/set_parameters"):
        assert may("operator", "reply", name)


def test_permissions_fit_into_the_handshake():
    """The sizes were measured with six files that SROS2 signed. 2.1 kB belong to other data."""
    for rules in allowed().values():
        size = sum(
            30 + len(name) if what in ("publish", "subscribe") else 72 + 2 * len(name)
            for what, names in rules.items()
            for name in names
        )
        # Room for longer names, as in a namespace.
        assert size + 2_700 + 2_100 < 0.9 * 8192
