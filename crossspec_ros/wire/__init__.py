"""Protocol between a robot and the server of its target: `captions.proto`, and frames in it.

`scripts/wire_code.py` generates `captions_pb2` with an old protoc, so that robots may have any protobuf from
4 on.
"""

VERSION = 3
"""Version of the protocol, which must be equal on both sides."""
SERVICE = "crossspec.Captions"
STREAM = "Stream"
METHOD = f"/{SERVICE}/{STREAM}"
MAX_SMALL = 1 << 16
"""Maximum bytes of a message other than a frame. The longest question and its hint have 56,000."""
MAX_HINT = 4000
"""Characters of a hint that are used."""
