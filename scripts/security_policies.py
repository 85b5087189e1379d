"""Write config/security/policies.xml from docs/reference/topics.md: `python scripts/security_policies.py`.

Under SROS2 a node may use the topics of that page, with the names that the launch files set.
test/test_security.py fails where the file differs, and ros/test_reference_topics.py where running nodes do
more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from crossspec_ros.ros.replay import EVENTS, IMAGE
from crossspec_ros.settings import NODES
from crossspec_ros.telemetry.trace import LATENCIES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "topics.md"
POLICIES = ROOT / "config" / "security" / "policies.xml"

ENCLAVES = "/crossspec"
"""Above the enclaves of all nodes; what `enclave:=` of the launch files is."""
DRIVER = "event_camera"
"""Name of a driver's node in live.launch.py."""
OPERATOR = "operator"
"""Enclave of people who watch: rqt, `ros2 topic`, `ros2 service`."""

OF_EVERY_NODE = {
    "publish": ["/rosout", "/parameter_events", "~/*"],
    "subscribe": ["/parameter_events", "/clock"],
    "reply": ["~/*"],
}
"""Names that rclpy makes by itself, and all names below a node's own name.

That is one pattern, because the handshake holds the permissions, and Fast DDS 3.2.2 fails at a handshake of
more than 8 kB.
"""
EXTRA = {
    # A heartbeat for nav2's manager.
    "captioner": {"publish": ["/bond"]},
    # The clock is optional. By the answers the player knows that the others are ready.
    "dsec_player": {
        "publish": ["/clock"],
        "request": ["/captioner/get_state", "/synchronizer/get_parameters"],
    },
}

_IMAGES = [f"/{IMAGE}", f"/{DRIVER}/image_raw"]
REMAPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "synchronizer": {
        "/events": [f"/{EVENTS}"],
        "/image": [f"{image}{suffix}" for image in _IMAGES for suffix in ("", "/compressed")],
    },
}
"""The topics that the launch files give a node in place of those on the page."""

Rules = Mapping[str, Sequence[str]]
"""Names by what may be done with them: publish, subscribe, reply, request."""
_WRITTEN = "<!-- Written by scripts/security_policies.py; see docs/security.md. -->"
_HEAD = f'<?xml version="1.0" encoding="UTF-8"?>\n{_WRITTEN}'
_KINDS = {"publish": "topic", "subscribe": "topic", "reply": "service", "request": "service"}


def main() -> None:
    """Write the file anew."""
    POLICIES.parent.mkdir(exist_ok=True)
    POLICIES.write_text(policies())


def policies() -> str:
    """Return the file's text."""
    root = Element("policy", version="0.2.0")
    enclaves = SubElement(root, "enclaves")
    for name, rules in every_rule().items():
        profiles = SubElement(SubElement(enclaves, "enclave", path=f"{ENCLAVES}/{name}"), "profiles")
        profile = SubElement(profiles, "profile", ns="/", node=name)
        for what, names in rules.items():
            expressions = SubElement(profile, f"{_KINDS[what]}s", {what: "ALLOW"})
            for each in names:
                SubElement(expressions, _KINDS[what]).text = each
    ElementTree.indent(root)
    return f"{_HEAD}\n{ElementTree.tostring(root, encoding='unicode')}\n"


def every_rule() -> dict[str, Rules]:
    """Return the rules of each of our nodes, of the driver and of operators."""
    found = {node: _sorted([OF_EVERY_NODE, EXTRA.get(node, {}), documented(node)]) for node in NODES}
    ours = [f"/{node}/*" for node in NODES]
    reached = {
        what: [name for node in NODES for name in found[node].get(what, ()) if name != "~/*"]
        for what in ("publish", "reply")
    }
    watch = {
        "subscribe": ["/rosout", *ours, *reached["publish"]],
        "request": [*ours, *reached["reply"]],
        # A window of rqt, and a `ros2` command, is a node named after its process.
        "reply": ["/rqt_gui_py_node_*", "/_ros2cli_*"],
    }
    return found | {DRIVER: _sorted([OF_EVERY_NODE]), OPERATOR: _sorted([OF_EVERY_NODE, watch])}


def documented(node: str) -> dict[str, list[str]]:
    """Return the actions of a node by the page, outside its own names, with the launch files' names."""
    found = defaultdict[str, list[str]](list)
    for nodes, (topic, direction, *_) in rows("Topics"):
        if node in nodes:
            for name in topics(topic):
                remapped = REMAPS.get(node, {}).get(name, [name])
                if direction == "in":
                    found["subscribe"] += remapped
                else:
                    found["publish"] += [name for name in remapped if not name.startswith(f"/{node}/")]
    return found


def rows(title: str) -> Iterator[tuple[list[str], list[str]]]:
    """(nodes named in bold above the table, cells) of each row of the tables in a section of the page."""
    nodes: list[str] = []
    for line in PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0].splitlines():
        if line.startswith("**`"):
            nodes = re.findall(r"\*\*`(\w+)`\*\*", line)
        elif line.startswith("| `"):
            yield nodes, line.strip("| ").split(" | ")


def quoted(cell: str) -> list[str]:
    """Return the texts between backticks."""
    return re.findall("`(.+?)`", cell)


def topics(cell: str) -> list[str]:
    """Return the topics of a cell; a name with STAGE is one for each stage."""
    stages = LATENCIES if "STAGE" in cell else [""]
    return [name.replace("STAGE", stage) for name in quoted(cell) for stage in stages]


def _sorted(many: Iterable[Rules]) -> Rules:
    merged = defaultdict[str, set[str]](set)
    for rules in many:
        for what, names in rules.items():
            merged[what].update(names)
    return {what: sorted(merged[what]) for what in _KINDS if merged[what]}


if __name__ == "__main__":
    main()
