"""Run a node until it ends, fails or is interrupted, and set the exit code."""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.utilities import remove_ros_args

from crossspec_ros.environment import transport_variables
from crossspec_ros.errors import InputError, LinkError, forget_frames, one_line, plain_text

_MAX_DOMAIN = 232
"""Maximum ROS domain. The ports of a higher one exceed 65535."""
_CALLBACKS_S = 1.0
"""Seconds to wait for running callbacks when the node ends."""


class NodeError(Exception):
    """Reason why a node cannot go on, in one sentence. `code` is the exit code of its process."""

    def __init__(self, reason: str, code: int = 1) -> None:
        super().__init__(reason)
        self.code = code


N = TypeVar("N")
_SENTENCES = (InputError, NodeError, TimeoutError)
"""Errors whose message is the last log line of a node. All others are bugs."""
_interrupted = threading.Event()
# Python would collect garbage among all objects of torch at exit, for seconds on a busy machine.
atexit.register(gc.freeze)


def run(
    make: Callable[[], N], args: Sequence[str] | None = None, work: Callable[[N], None] | None = None
) -> None:
    """Create a node and spin it in a new thread. The calling thread does the `work`, or waits.

    The node's `stop` ends the node's own threads. Returns when the work is done, and after Ctrl-C or SIGTERM.
    Bad input exits with one sentence and code 2. A NodeError or a TimeoutError exits with code 1.
    """
    node: Any = None
    executor: Executor | None = None
    spin: threading.Thread | None = None
    failed: list[BaseException] = []
    before = signal.getsignal(signal.SIGINT)
    _interrupted.clear()
    try:
        # The parent process may have set SIGINT to be ignored, see `children.start`.
        signal.signal(signal.SIGINT, _interrupt)
        # A node that a user starts directly gets the same transport as in launch files.
        os.environ.update(transport_variables())
        node = _made(make, args)
        executor = getattr(node, "make_executor", SingleThreadedExecutor)()
        executor.add_node(node)
        wake = _thread.interrupt_main if work else None
        spin = threading.Thread(target=_spin, args=(executor, failed, wake), name="executor", daemon=True)
        spin.start()
        work(node) if work else spin.join()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception as error:
        # All calls of ROS fail while it shuts down.
        if not interrupted() and (rclpy.ok() or isinstance(error, InputError)):
            failed.append(error)
    finally:
        # A second Ctrl-C must not interrupt the clean-up.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        failure = failed[0] if failed else None
        code = exit_code(failure) if failure else 0
        if isinstance(failure, _SENTENCES):
            sentence = plain_text(str(failure))
            if node is None:
                print(f"crossspec: error: {sentence}", file=sys.stderr, flush=True)
            else:
                node.get_logger().fatal(sentence)
            # The frames reference the node.
            forget_frames(failure)
        try:
            if executor is not None:
                executor.remove_node(node)
            is_stuck = node is not None and _destroy(node)
        finally:
            # This ends the executor. The executor's own `shutdown` would wait for callbacks.
            rclpy.try_shutdown()
        if spin is not None:
            spin.join(timeout=1.0)
        # Reference cycles keep a lifecycle node alive, and with it the shared memory of DDS.
        node = executor = spin = None
        gc.collect()
        if is_stuck:
            # Python would wait for the stuck callback, which may load models for minutes.
            sys.stdout.flush()
            os._exit(code)
        signal.signal(signal.SIGINT, before)
    if failure is not None and not isinstance(failure, _SENTENCES):
        raise failure
    if code:
        sys.exit(code)


def interrupted() -> bool:
    """Return whether Ctrl-C has interrupted the node, after which failures are expected."""
    return _interrupted.is_set()


def _made(make: Callable[[], N], args: Sequence[str] | None) -> N:
    if args is None and (words := remove_ros_args(sys.argv)[1:]):
        raise InputError(
            f"the node has no argument {words[0]}: set a parameter with `--ros-args -p NAME:=VALUE`"
        )
    if (domain := os.environ.get("ROS_DOMAIN_ID", "")).isdecimal() and int(domain) > _MAX_DOMAIN:
        raise InputError(f"ROS_DOMAIN_ID is {domain}: set it to a number from 0 to {_MAX_DOMAIN}")
    try:
        rclpy.init(args=None if args is None else list(args))
        return make()
    except InputError:
        raise
    except Exception as error:  # of various types in different releases of ROS
        reason = one_line(error)
        # Messages of ROS mention SROS2 only if a keystore is set.
        has_sign = any(sign in reason.lower() for sign in ("security", "error not set"))
        if has_sign and os.environ.get("ROS_SECURITY_ENABLE") == "true":
            raise InputError(
                f"ROS cannot start with SROS2 ({reason}): create keys of this enclave in "
                f"ROS_SECURITY_KEYSTORE, use the packages of a ROS distribution if the wheels lack SROS2, or "
                f"unset ROS_SECURITY_ENABLE"
            ) from None
        if rclpy.ok():
            raise
        problem = "does not understand the arguments" if "arg" in reason.lower() else "cannot start"
        raise InputError(f"ROS {problem}: {reason}") from None


def _spin(executor: Executor, failed: list[BaseException], wake: Callable[[], None] | None) -> None:
    """Spin until ROS shuts down. An exception of a callback goes to `failed`, and interrupts the work."""
    try:
        executor.spin()
    except ExternalShutdownException:
        pass
    except BaseException as error:  # without this thread, the node would receive nothing
        if rclpy.ok():
            failed.append(error)
            if wake:
                wake()


def exit_code(error: BaseException) -> int:
    """Return 2 for bad input, with which a restart would fail as well, or else the error's code or 1."""
    # An unreachable server may be available later.
    is_bad_input = isinstance(error, InputError) and not isinstance(error, LinkError)
    return 2 if is_bad_input else getattr(error, "code", 1)


def _destroy(node: Any) -> bool:
    """Stop and destroy a node. Return whether one of its callbacks is stuck."""
    node.stop()
    node.destroy_node()
    ends_s, boundary = time.monotonic() + _CALLBACKS_S, getattr(node, "boundary", None)
    while boundary is not None and boundary.running and time.monotonic() < ends_s:
        time.sleep(0.01)
    return boundary is not None and bool(boundary.running)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _interrupted.set()
    raise KeyboardInterrupt
