"""Protocol of a robot and the server of its target: `captions.proto`, and frames in it.

`scripts/wire_code.py` generates `captions_pb2` with a protoc so old that robots may have any protobuf from 4
on.
"""

VERSION = 3
"""Version of the protocol: both sides must have the same."""
SERVICE = "crossspec.Captions"
STREAM = "Stream"
METHOD = f"/{SERVICE}/{STREAM}"
MAX_SMALL = 1 << 16
"""Bytes of a message that is no frame. The longest question and its hint have 56,000."""
MAX_HINT = 4000
"""Characters of a hint; the rest of a longer one is not used."""
