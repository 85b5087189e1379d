"""Which nodes a live camera gets."""

from __future__ import annotations

import pytest
from stand_ins import write_models

from crossspec_ros.errors import InputError
from crossspec_ros.ros.live_graph import installed, live_graph


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def nothing(package):
    return False


def everything(package):
    return True


@pytest.mark.parametrize(
    ("camera", "is_installed", "names", "driver", "image"),
    [
        ("davis", everything, ["synchronizer", "captioner"], "libcaer_driver", "event_camera/image_raw"),
        ("davis", nothing, ["synchronizer", "captioner", "dv_camera"], None, "camera/image_raw"),
        ("dvxplorer", everything, ["synchronizer", "captioner"], "libcaer_driver", "camera/image_raw"),
        ("prophesee", everything, ["synchronizer", "captioner"], "metavision_driver", "camera/image_raw"),
        ("topics", nothing, ["synchronizer", "captioner"], None, "camera/image_raw"),
    ],
)
def test_each_camera_gets_who_publishes_it(models, camera, is_installed, names, driver, image):
    graph = live_graph(camera, models=models, is_installed=is_installed)
    assert [process.name for process in graph.processes] == names
    assert (graph.driver.package if graph.driver else None) == driver
    assert graph.processes[0].remaps == {"events": "event_camera/events", "image": image}
    assert graph.processes[0].parameters["frame_size"] == 24
    assert (driver or ("dv_camera" if "dv_camera" in names else "no driver")) in graph.choice
    if camera in ("davis", "dvxplorer") and driver:
        assert graph.driver.parameters["device_type"] == camera


def test_a_network_stream_and_topics_are_wired_as_asked(models):
    graph = live_graph("dv_network", "tcp://host:7", "host:8", models=models, question="why?")
    camera = graph.processes[-1]
    assert {"source": "tcp://host:7", "frames": "host:8"}.items() <= camera.parameters.items()
    assert graph.processes[1].parameters["question"] == "why?"
    graph = live_graph("topics", events="/e", image="/i", models=models)
    assert graph.processes[0].remaps == {"events": "/e", "image": "/i"}


@pytest.mark.parametrize(
    ("camera", "arguments", "sentence"),
    [
        ("davsi", {}, "camera is 'davsi', which is none: did you mean davis?"),
        ("dv_network", {}, "camera:=dv_network needs a source: give one like source:=tcp://"),
        ("davis", {"source": "tcp://h:1"}, "source and frames do not fit camera:=davis"),
        ("prophesee", {"events": "/e"}, "camera:=prophesee has its own topic: set camera:=topics"),
        ("prophesee", {}, "is not installed: sudo apt install ros-kilted-metavision-driver"),
    ],
)
def test_what_cannot_work_gets_a_sentence(models, monkeypatch, camera, arguments, sentence):
    monkeypatch.setenv("ROS_DISTRO", "kilted")
    with pytest.raises(InputError) as error:
        live_graph(camera, **arguments, models=models, is_installed=nothing)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_package_is_installed_where_the_index_has_it(tmp_path, monkeypatch):
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere:{tmp_path}")
    marker = tmp_path / "share" / "ament_index" / "resource_index" / "packages" / "libcaer_driver"
    assert not installed("libcaer_driver")
    marker.parent.mkdir(parents=True)
    marker.touch()
    assert installed("libcaer_driver")
