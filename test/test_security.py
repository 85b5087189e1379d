"""config/security/ allows every node what it does by docs/reference/topics.md, and nothing else."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

import pytest

from crossspec_ros.captioning.settings import NODES
from crossspec_ros.errors import InputError
from crossspec_ros.ros.launch_arguments import enclave_arguments
from crossspec_ros.ros.live_graph import Driver

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import security_policies as security  # noqa: E402


def allowed() -> dict[str, dict[str, set[str]]]:
    """The names in the file by enclave and by what is allowed."""
    found: dict[str, dict[str, set[str]]] = {}
    for enclave in ElementTree.parse(security.POLICIES).iter("enclave"):
        rules = found.setdefault(enclave.attrib["path"], {})
        for expressions in (each for profile in enclave.iter("profile") for each in profile):
            ((what, verdict),) = expressions.attrib.items()
            assert verdict == "ALLOW"
            rules.setdefault(what, set()).update(each.text or "" for each in expressions)
    return found


def test_the_file_is_that_of_the_tables() -> None:
    assert security.POLICIES.read_text() == security.policies(), "run scripts/security_policies.py"


def test_every_node_and_a_driver_have_an_enclave_of_their_own() -> None:
    named = {path.removeprefix(f"{security.ENCLAVES}/") for path in allowed()}
    assert named == {*NODES, Driver("any_driver").name, security.OPERATOR}


def test_who_publishes_a_topic_has_a_reader_that_may_hear_it() -> None:
    """The names are those after the launch files' remaps on both sides."""
    rules = {path.rpartition("/")[2]: each for path, each in allowed().items()}
    assert rules["synchronizer"]["publish"] >= {"/synchronizer/frame", "/synchronizer/window_closed"}
    assert rules["captioner"]["subscribe"] >= {"/synchronizer/frame", "/synchronizer/window_closed"}
    assert "/captioner/report" in rules["captioner"]["publish"] & rules["dsec_player"]["subscribe"]
    assert rules["dsec_player"]["publish"] & rules["synchronizer"]["subscribe"] >= {
        "/event_camera/events",
        "/camera/image_raw",
        "/camera/image_raw/compressed",
        "/clock",
    }
    assert "/captioner/ask" in rules["captioner"]["reply"]
    # A synchronizer that was taken over must not be able to caption.
    assert not [name for name in rules["synchronizer"]["publish"] if name.startswith("/captioner/")]


def test_people_may_use_whatever_our_nodes_offer() -> None:
    rules = {path.rpartition("/")[2]: each for path, each in allowed().items()}
    people = rules[security.OPERATOR]
    for node in NODES:
        offered = [("subscribe", name) for name in rules[node].get("publish", ())]
        offered += [("request", name.replace("~", f"/{node}")) for name in rules[node]["reply"]]
        for what, name in offered:
            # A heartbeat for nav2 alone.
            assert any(fnmatchcase(name, one) for one in people[what]) or name == "/bond"
    assert not any(fnmatchcase("/somebody/set_parameters", one) for one in people["request"])
    for name in ("/_ros2cli_77/get_type_description", "/rqt_gui_py_node_77/set_parameters"):
        assert any(fnmatchcase(name, one) for one in people["reply"])


def test_a_node_is_started_in_its_own_enclave() -> None:
    assert enclave_arguments("", "captioner") == []
    for given in ("/crossspec", "/crossspec/"):
        assert enclave_arguments(given, "captioner") == ["--enclave", "/crossspec/captioner"]
    for wrong in ("crossspec", "/", "/cross spec", "/crossspec//x", "/crossspec/../x"):
        with pytest.raises(InputError, match="enclave is "):
            enclave_arguments(wrong, "captioner")
