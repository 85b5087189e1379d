"""A replay that can be compared with goldens, and what else they must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.captioning.setup import ReplaySetup
from crossspec_ros.errors import InputError


@dataclass(frozen=True)
class Setup(ReplaySetup):
    """A replay, and by what its goldens know it; raises InputError as `ReplaySetup`."""

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What captions may depend on besides the code: recording, models and settings, ready for JSON."""
        return {
            "recording": self.recording_digest,
            "models": models_digest([*self.draft_folders, self.target_folder]),
            "settings": self.settings,
        }

    def check(self, path: Path, stored: Mapping[str, Any]) -> None:
        """Raise InputError when the file `path`, whose identity is `stored`, belongs to another replay."""
        for part, name in (("recording", "recording"), ("models", "pair of models")):
            if stored.get(part) != self.identity[part]:
                raise InputError(
                    f"'{path}' was made from another {name} ({stored.get(part)}) than that of this run "
                    f"({self.identity[part]}): give the right one, or write new goldens with --update"
                )
        then, now = stored.get("settings", {}), self.identity["settings"]
        for key in {**now, **then}:
            if then.get(key) != now.get(key):
                old, new = (repr(one[key]) if key in one else "unset" for one in (then, now))
                raise InputError(
                    f"'{path}' was made with {key} {old}, but this run has {new}: give the same --question, "
                    f"--dtype and --config, or write new goldens with --update"
                )
