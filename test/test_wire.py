"""The generated code matches the .proto."""

from __future__ import annotations

import re

from crossspec_ros.paths import share_dir
from crossspec_ros.wire import SERVICE, STREAM
from crossspec_ros.wire import captions_pb2 as wire

PROTO = share_dir() / "crossspec_ros" / "wire" / "captions.proto"


def test_code_matches_the_proto():
    text = re.sub(r"//.*|enum \w+ \{[^}]*\}", "", PROTO.read_text())
    written = {
        name: {field: int(number) for field, number in re.findall(r"(\w+) = (\d+);", body)}
        for name, body in re.findall(r"message (\w+) \{(.*?)\n?\}(?=\s*(?:message|service|$))", text, re.S)
    }
    generated = {
        name: {field.name: field.number for field in message.fields}
        for name, message in wire.DESCRIPTOR.message_types_by_name.items()
    }
    assert written == generated
    assert SERVICE == "crossspec.Captions" and f"rpc {STREAM}(stream Up) returns (stream Down)" in text
