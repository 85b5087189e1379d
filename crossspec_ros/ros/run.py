"""Runs one node until it ends, is interrupted or cannot start, with the exit code that says which."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Protocol, TypeVar, cast

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

from crossspec_ros.environment import transport_variables
from crossspec_ros.errors import InputError, one_line, plain_text


class NodeError(Exception):
    """Why a node cannot go on, in one sentence, where the input is not to blame."""


class ThreadError(NodeError):
    """A thread of the node is dead or stuck."""


ENDING_S = 5.0
"""Seconds that a node with a stuck thread gets to end; what it waits for may never come."""


class Runnable(Protocol):
    """A node that has something to stop before it is destroyed."""

    def stop(self) -> None:
        """End the node's own threads; called once, after the last callback."""

    def destroy_node(self) -> None:
        """As rclpy has it."""


N = TypeVar("N", bound=Runnable)


def run(
    make: Callable[[], N], args: Sequence[str] | None = None, work: Callable[[N], None] | None = None
) -> None:
    """Make a node and spin it, in another thread while there is `work` to do with it in this one.

    Returns when the work is done, after Ctrl-C and after SIGTERM. Exits with one sentence and code 2 on bad
    input, code 1 after a NodeError and when something due did not come in time.
    """
    node: N | None = None
    failed: list[BaseException] = []
    ending: threading.Timer | None = None
    before = signal.getsignal(signal.SIGINT)
    unraisable = sys.unraisablehook
    _told.clear()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _told.set()
        _on_interrupt(_wait_once)  # launch passes on what the terminal tells as well
        raise KeyboardInterrupt

    def again(what: sys.UnraisableHookArgs) -> None:
        """One that Python can only print, as in a finalizer, would be lost."""
        if issubclass(what.exc_type, KeyboardInterrupt):
            _on_interrupt(interrupt)
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            unraisable(what)

    def goes_on() -> bool:
        # Told to end, ROS fails in whatever is under way; nobody needs to see that.
        return bool(failed) or (rclpy.ok() and not _told.is_set())

    try:
        sys.unraisablehook = again
        # Whoever started this process may have had it ignore interrupts, see `children.start`.
        _on_interrupt(interrupt)
        # A node that a user starts by hand gets the transport that launch files give it.
        os.environ.update(transport_variables())
        _init(args)
        node = _made(make)
        if work:
            with _spinning(node, failed):
                work(node)
        else:
            rclpy.spin(cast(Node, node))
    except InputError as error:
        if not interrupted():
            _fail(error, 2)
    except (NodeError, TimeoutError) as error:
        if goes_on():
            if isinstance(error, ThreadError):
                ending = end_within(ENDING_S)
            _fail(error, 1)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception:
        if goes_on():
            raise
    finally:
        _on_interrupt(_wait_once)
        try:
            if node is not None:
                node.stop()
                node.destroy_node()
        finally:
            rclpy.try_shutdown()
        # A lifecycle node hangs on cycles, and with it the shared memory that DDS would leave behind.
        node = None
        gc.collect()
        # The models would take a second more to collect, and the process ends anyhow.
        gc.freeze()
        sys.unraisablehook = unraisable
        if ending is not None:
            ending.cancel()
        _on_interrupt(before)


_told = threading.Event()


def interrupted() -> bool:
    """Whether the node that runs was told to end by Ctrl-C: what fails from then on is nobody's error."""
    return _told.is_set()


@contextmanager
def _spinning(node: Runnable, failed: list[BaseException]) -> Iterator[None]:
    """Spin in a thread; what that raises ends the work, stands in `failed`, and is raised here."""
    executor = SingleThreadedExecutor()
    executor.add_node(cast(Node, node))
    thread = threading.Thread(target=_spin, args=(executor, failed), name="executor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        executor.shutdown()
        thread.join(timeout=1.0)
        if failed:
            raise failed[0]


def _spin(executor: SingleThreadedExecutor, failed: list[BaseException]) -> None:
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except BaseException as error:  # without this thread the node would be up, but deaf
        if rclpy.ok():
            failed.append(error)
            rclpy.try_shutdown()


def end_within(seconds: float) -> threading.Timer:
    """End the process then, if it has not ended by itself."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    return timer


def _fail(error: Exception, code: int) -> NoReturn:
    print(f"crossspec: error: {plain_text(str(error))}", file=sys.stderr, flush=True)
    sys.exit(code)


def _wait_once(number: int, frame: FrameType | None) -> None:
    """A second Ctrl-C must not break off what the first has begun; a third means it."""
    _on_interrupt(lambda number, frame: os._exit(130))


def _on_interrupt(action: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, action)


def _init(args: Sequence[str] | None) -> None:
    try:
        rclpy.init(args=None if args is None else list(args))
    except Exception as error:  # of several types, by the release of ROS
        told = one_line(error)
        problem = "does not understand the arguments" if "arg" in told.lower() else "cannot start"
        raise _sros2_fault(error) or InputError(f"ROS {problem}: {told}") from None


def _made(make: Callable[[], N]) -> N:
    try:
        return make()
    except InputError:
        raise
    except Exception as error:
        if fault := _sros2_fault(error):
            raise fault from None
        raise


def _sros2_fault(error: Exception) -> InputError | None:
    """The remedy where SROS2 keeps ROS from starting, which says so only where a keystore is named."""
    told = one_line(error)
    is_secured = os.environ.get("ROS_SECURITY_ENABLE") == "true"
    if not is_secured or not any(sign in told.lower() for sign in ("security", "error not set")):
        return None
    return InputError(
        f"ROS cannot start with SROS2 ({told}): give this enclave keys in ROS_SECURITY_KEYSTORE, "
        f"take the packages of a ROS distribution if the wheels lack SROS2, or unset ROS_SECURITY_ENABLE"
    )
