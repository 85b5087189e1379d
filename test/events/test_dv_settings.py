"""Region and biases reach the setters of dv-processing's classes; no camera is needed."""

from __future__ import annotations

from types import SimpleNamespace

import dv_processing as dv
import pytest

from crossspec_ros.errors import InputError
from crossspec_ros.events.dv_settings import Settings

DAVIS, DVS128, DVXPLORER = (getattr(dv.io.camera, name) for name in ("DAVIS", "DVS128", "DVXplorer"))


def fake(kind, **more):
    """Has every member of the class; setters write down how they were called."""
    calls = []
    members = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    for name in filter(lambda name: name.startswith("set"), members):
        members[name] = lambda *values, name=name: calls.append((name, *values))
    members["getCameraName"] = lambda: kind.__name__
    return SimpleNamespace(**members | more), calls


@pytest.mark.parametrize(
    ("model", "biases", "expected"),
    [
        ("DAVIS346", "Diff=4/39", ("setDavis346BiasCoarseFine", DAVIS.Davis346BiasCF.Diff, 4, 39)),
        ("DAVIS346", "ApsCascode=21", ("setDavis346BiasVoltage", DAVIS.Davis346BiasVDAC.ApsCascode, 21)),
        ("DAVIS240C", "On=5/200", ("setDavis240BiasCoarseFine", DAVIS.Davis240BiasCF.On, 5, 200)),
        ("CDAVIS", "Off=3/100", ("setCDavisBiasCoarseFine", DAVIS.CDavisBiasCF.Off, 3, 100)),
    ],
)
def test_the_biases_of_each_davis(model, biases, expected):
    camera, calls = fake(DAVIS, getSensorModel=lambda: getattr(DAVIS.SensorModel, model))
    Settings.parse("1,2,30,40", biases).apply(camera)
    assert calls == [("setCropArea", (1, 2, 30, 40)), expected]


def test_the_biases_of_the_others():
    camera, calls = fake(DVXPLORER)
    Settings.parse("", "ContrastThresholdOn=5,ContrastThresholdOff=6").apply(camera)
    assert calls == [("setContrastThresholdOn", 5), ("setContrastThresholdOff", 6)]
    camera, calls = fake(DVS128)
    Settings.parse("", "DIFF_ON=1000").apply(camera)
    assert calls == [("setBias", DVS128.Bias.DIFF_ON, 1000)]


def test_what_a_camera_does_not_have_or_take_is_named():
    camera, _ = fake(DVXPLORER)
    with pytest.raises(InputError, match="DVXplorer has no bias Diff: choose from ContrastThresholdOn"):
        Settings.parse("", "Diff=3/4").apply(camera)

    def refuse(area):
        raise RuntimeError("out of range")

    camera.setCropArea = refuse
    with pytest.raises(InputError, match=r"does not take this roi \(out of range\): give another value"):
        Settings.parse("0,0,9999,9", "").apply(camera)
