"""YAML files of bounded size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from crossspec_ros.errors import one_line
from crossspec_ros.files import NoSmallFileError, read_small

MAX_BYTES = 1 << 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:
    """Read a YAML file into plain types.

    Raises OSError if the file cannot be read, and ValueError if it is too large or not valid YAML.
    """
    try:
        return yaml.load(read_small(path, MAX_BYTES).decode(), _Loader)
    except NoSmallFileError as error:
        raise ValueError(str(error)) from None
    # PyYAML raises the others for values that do not fit their tag.
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(one_line(error)) from None
