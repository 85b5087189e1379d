"""The ROS 2 nodes: everything that imports rclpy."""

import os
import signal
import sys
from pathlib import Path

from crossspec_ros.environment import ros_faults

_PROGRAMS = ("-m", "captioner", "dsec_player", "dv_camera", "launch_plan", "synchronizer")

# A program has nothing to close while it imports, so an interrupt ends it at once until `run` takes over. As
# an exception it would print where the imports were, or turn into an error of whatever is being imported.
if (
    Path(sys.argv[0]).name in _PROGRAMS
    # Whoever started it may have had it ignore interrupts, see `children.start`.
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Before rclpy is imported, which ends the process where the middleware is missing.
if Path(sys.argv[0]).name in _PROGRAMS and (_fault := next(ros_faults(os.environ), None)):
    print(f"crossspec: error: {_fault}", file=sys.stderr)
    sys.exit(2)
