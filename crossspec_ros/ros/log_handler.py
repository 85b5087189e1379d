"""Python logging of this package in the log of ROS: console, files and /rosout."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rclpy.impl.rcutils_logger import RcutilsLogger

from crossspec_ros.errors import plain_text

_LOG = logging.getLogger("crossspec_ros")


class RosHandler(logging.Handler):
    """Pass records to the logger of a node."""

    def __init__(self, logger: RcutilsLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log the message of a record on one line."""
        try:
            text = plain_text(record.getMessage())
        except Exception:
            self.handleError(record)
            return
        # A call each, because rclpy allows one severity for each line of code.
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)


def log_to_ros(logger: RcutilsLogger) -> Callable[[], None]:
    """Pass this package's records to the logger until the returned function is called.

    A process has one such handler: later calls do nothing while the first one holds.
    """
    if any(isinstance(handler, RosHandler) for handler in _LOG.handlers):
        return lambda: None
    handler, level = RosHandler(logger), _LOG.level
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)

    def stop() -> None:
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)

    return stop
