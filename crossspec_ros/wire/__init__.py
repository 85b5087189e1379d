"""What a robot and the server of its target say to each other: `captions.proto`, and frames in it.

`captions_pb2` is generated (`scripts/wire_code.py`), by a protoc so old that robots may have any protobuf
from 4 on.
"""

VERSION = 1
"""Of the protocol: both sides must speak the same."""
SERVICE, STREAM = "crossspec.Captions", "Stream"
METHOD = f"/{SERVICE}/{STREAM}"
