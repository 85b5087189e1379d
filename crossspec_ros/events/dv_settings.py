"""Region and biases of an attached iniVation camera, as far as dv-processing lets them be set."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from crossspec_ros.errors import InputError
from crossspec_ros.events.dv import dv_message

if TYPE_CHECKING:
    import dv_processing as dv

_BIAS = r"\w+=\d+(/\d+)?"


@dataclass(frozen=True)
class Settings:
    """`roi` is (x, y, width, height) in pixels; `biases` maps dv-processing's names to one number or two."""

    roi: tuple[int, ...] = ()
    biases: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @staticmethod
    def parse(roi: str, biases: str) -> Settings:
        """Read `X,Y,WIDTH,HEIGHT` and `NAME=VALUE,NAME=COARSE/FINE`; both may be empty; raises InputError."""
        if roi and not re.fullmatch(r"\d+(,\d+){3}", roi):
            raise InputError(
                f"roi is '{roi}', but it must be X,Y,WIDTH,HEIGHT in pixels: give one like 0,0,320,240"
            )
        if biases and not re.fullmatch(rf"{_BIAS}(,{_BIAS})*", biases):
            raise InputError(
                f"biases is '{biases}', but it must be NAME=VALUE or NAME=COARSE/FINE, with commas between: "
                f"give one like Diff=4/39,On=5/200"
            )
        pairs = [text.split("=") for text in biases.split(",") if text]
        return Settings(
            tuple(int(number) for number in roi.split(",") if number),
            tuple((name, tuple(int(number) for number in value.split("/"))) for name, value in pairs),
        )

    def apply(self, camera: dv.io.camera.CameraInputBase) -> None:
        """Set them; raises InputError for what this camera does not have or take."""
        if self.roi:
            _set("roi", camera.setCropArea, self.roi)
        setters = _setters(camera)
        for name, values in self.biases:
            if name not in setters:
                raise InputError(
                    f"{camera.getCameraName()} has no bias {name}: choose from {', '.join(setters) or 'none'}"
                )
            _set(f"bias {name}", setters[name], *values)


def _set(what: str, setter: Callable[..., None], *values: object) -> None:
    try:
        setter(*values)
    except (TypeError, ValueError, RuntimeError) as error:
        told = dv_message(error)
        raise InputError(f"the camera does not take this {what} ({told}): give another value") from error


def _setters(camera: Any) -> dict[str, Callable[..., None]]:
    """Setters of a camera's biases, by name."""
    if hasattr(camera, "setContrastThresholdOn"):
        return {
            "ContrastThresholdOn": camera.setContrastThresholdOn,
            "ContrastThresholdOff": camera.setContrastThresholdOff,
        }
    if hasattr(camera, "setBias"):
        return {name: partial(camera.setBias, bias) for name, bias in camera.Bias.__members__.items()}
    setters: dict[str, Callable[..., None]] = {}
    if hasattr(camera, "getSensorModel"):
        model = camera.getSensorModel().name
        family = "CDavis" if model == "CDAVIS" else f"Davis{re.sub('[^0-9]', '', model)}"
        for kind, setter in (("CF", "CoarseFine"), ("VDAC", "Voltage")):
            names = getattr(camera, f"{family}Bias{kind}", None)
            for name, bias in names.__members__.items() if names else ():
                setters[name] = partial(getattr(camera, f"set{family}Bias{setter}"), bias)
    return setters
