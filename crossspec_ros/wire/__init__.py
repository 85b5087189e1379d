"""Protocol of a robot and the server of its target: `captions.proto`, and frames in it.

`captions_pb2` is generated (`scripts/wire_code.py`), by a protoc so old that robots may have any protobuf
from 4 on.
"""

VERSION = 1
"""Version of the protocol: both sides must speak the same."""
SERVICE = "crossspec.Captions"
STREAM = "Stream"
METHOD = f"/{SERVICE}/{STREAM}"
