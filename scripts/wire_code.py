"""Generate crossspec_ros/wire/captions_pb2.py from captions.proto: `python scripts/wire_code.py`.

Needs grpcio-tools==1.62.3, whose code any protobuf from 4 on reads. test/test_wire.py fails where they
differ.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = Path("crossspec_ros") / "wire" / "captions.proto"


def main() -> None:
    """Write the module and its types anew."""
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--pyi_out=.", str(PROTO)]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
