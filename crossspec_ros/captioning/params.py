"""The parameters of the nodes: what they mean, which values they take, and the sentence for a bad one.

Nothing here needs ROS until a node declares its parameters, so that the CLI can refuse a configuration before
it starts a process.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.placement import DEVICE, DEVICES, DTYPES

if TYPE_CHECKING:
    from rcl_interfaces.msg import ParameterDescriptor
    from rclpy.node import Node
    from rclpy.parameter import Parameter

Value = bool | int | float | str


@dataclass(frozen=True)
class Param:
    """One parameter; its type is the default's. `low` and `high` bound numbers, `choices` lists strings.

    `several` choices may be named with commas between, or none. Text must match `pattern`, which
    `choices` then put into words. `live` ones may be changed while the node runs.
    """

    name: str
    default: Value
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    several: bool = False
    pattern: str = ""
    live: bool = False

    @property
    def attribute(self) -> str:
        """The name of its value in Python, where no name has a dot."""
        return self.name.replace(".", "_")

    def check(self, value: object) -> Value:
        """The value in the parameter's type; raises InputError for another type or out of range."""
        kind = type(self.default)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise InputError(
                f"parameter {self.name} is {value!r}, but it must be a {kind.__name__}: {self.description}"
            )
        assert isinstance(value, (bool, int, float, str))
        named = read_names(value) if self.several else (value,)
        if self.pattern:
            fits = re.fullmatch(self.pattern, str(value)) is not None
        else:
            fits = not self.choices or set(named) <= set(self.choices)
        if not fits:
            raise InputError(f"parameter {self.name} is {value!r}, but it must be {self._choose}")
        if self.low is not None and self.high is not None and not self.low <= float(value) <= self.high:
            raise InputError(
                f"parameter {self.name} is {value}, but it must be from {self.low:g} to {self.high:g}: "
                f"{self.description}"
            )
        return value

    @property
    def _choose(self) -> str:
        return f"{'any' if self.several else 'one'} of {', '.join(self.choices)}"

    def descriptor(self) -> ParameterDescriptor:
        """What ROS tells about it."""
        from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

        descriptor = ParameterDescriptor(description=self.description, read_only=not self.live)
        if self.choices:
            descriptor.additional_constraints = self._choose
        if self.low is not None and self.high is not None:
            if isinstance(self.default, float):
                bounds = FloatingPointRange(from_value=float(self.low), to_value=float(self.high))
                descriptor.floating_point_range = [bounds]
            else:
                descriptor.integer_range = [IntegerRange(from_value=int(self.low), to_value=int(self.high))]
        return descriptor


EVENT_TYPES = ("event_camera_msgs/EventPacket", "dvs_msgs/EventArray")
IMAGE_TRANSPORTS = ("raw", "compressed")
PROPOSERS = ("memory", "event_draft")
MODES = ("prefill_hidden", "autoregressive")
SLICINGS = ("time", "count")

PARAMS: dict[str, tuple[Param, ...]] = {
    "synchronizer": (
        Param("event_type", EVENT_TYPES[0], "message type of the topic events", choices=EVENT_TYPES),
        Param(
            "image_transport",
            "raw",
            "whether the topic image carries Image or CompressedImage",
            choices=IMAGE_TRANSPORTS,
        ),
        Param("event_images", 5, "event images per window", 1, 32),
        Param("frames", 8, "frame slots per window", 1, 64),
        Param("frame_size", 0, "shortest edge of published frames in pixels, 0 keeps the camera's", 0, 4096),
        Param(
            "event_slicing",
            SLICINGS[0],
            "whether event images have equal times, each ready at its end, or equally many events",
            choices=SLICINGS,
        ),
        Param(
            "event_image_size",
            0,
            "shortest edge of published event images in pixels, 0 keeps the sensor's",
            0,
            4096,
        ),
        Param(
            "max_lateness_s",
            0.2,
            "how long a window waits for the slower stream, in seconds of data time",
            0.0,
            10.0,
        ),
        Param(
            "queue_size",
            2000,
            "messages that may wait for decoding before new ones are dropped",
            1,
            1_000_000,
        ),
        Param("queue_mb", 256, "megabytes of messages that may wait for decoding likewise", 1, 65_536),
    ),
    "captioner": (
        Param("models.folder", "", "folder with the target and draft checkpoints, empty for the tiny pair"),
        Param("target", "", "folder or hub id of the target alone, empty for that in models.folder"),
        Param("draft", "", "folder of the draft alone, empty for that in models.folder"),
        Param("models.dtype", DTYPES[0], "numbers that both models are loaded in", choices=DTYPES),
        Param(
            "models.device",
            "auto",
            "where the models run; auto is the first GPU, or the CPU where there is none",
            choices=("auto", *DEVICES),
            pattern=rf"auto|{DEVICE}",
        ),
        Param(
            "models.draft_device",
            "",
            "where the draft runs, empty for where the target does",
            choices=DEVICES,
            pattern=rf"({DEVICE})?",
        ),
        Param("models.fallback", False, "take smaller numbers, then the CPU, where the models do not fit"),
        Param(
            "question",
            "What are the key elements in this scene?",
            "what is asked about every window",
            live=True,
        ),
        Param("mode", MODES[0], "how the target decodes", choices=MODES, live=True),
        Param("max_new_tokens", 64, "length at which a caption is cut, in tokens", 1, 2048, live=True),
        Param(
            "deadline_s",
            0.0,
            "time after its window at which a caption is cut short, 0 for none",
            0.0,
            60.0,
            live=True,
        ),
        Param(
            "proposers",
            ",".join(PROPOSERS),
            "who may draft for the target, comma between, empty for nobody",
            choices=PROPOSERS,
            several=True,
            live=True,
        ),
        Param(
            "max_nodes",
            128,
            "draft tokens that a pass may verify; as many are as pay by its measured cost",
            0,
            128,
            live=True,
        ),
        Param("least_prob", 1e-4, "drafts less likely than this are not verified", 0.0, 1.0, live=True),
        Param(
            "temperature",
            0.0,
            "temperature of sampling; 0 always takes the likeliest token",
            0.0,
            10.0,
            live=True,
        ),
        Param("top_p", 1.0, "share of the probability that sampling keeps", 0.01, 1.0, live=True),
        Param("seed", 0, "seed of sampling", 0, 2**31 - 1, live=True),
        Param(
            "memory",
            "auto",
            "file that keeps the caption memory from session to session; auto is one for each target in the "
            "user's state folder, none keeps nothing",
        ),
        Param("threads", 1, "CPU threads of each model", 1, 256),
        Param("autostart", True, "configure and activate without being told to"),
        Param("stages", False, "tell under each caption, and at the end of the run, where the time went"),
        Param(
            "compare",
            False,
            "caption each window with the target alone as well, and tell at the end how much later that was",
        ),
    ),
    "dsec_player": (
        Param("path", "", "the recording, of a format that `crossspec replay --help` names"),
        Param("images", "", "folder of PNG or JPEG files to take as its images, empty for its own"),
        Param("events_topic", "", "the bag's topic of events to play; empty: the best, as `info` tells"),
        Param("image_topic", "", "the bag's topic of images to play; empty: the best, as `info` tells"),
        Param("rate", 1.0, "speed of the replay, 1 is that of the recording", 0.01, 100.0),
        Param("loop", False, "start again at the end"),
        Param(
            "wait_for_captions",
            True,
            "start only once the captioner is ready, end only after its last report",
        ),
        Param(
            "every_window", False, "pause whenever the captions fall a window behind, so that none is skipped"
        ),
        Param(
            "max_lateness_s",
            0.2,
            "the synchronizer's, because the sign that the stream is over must come later",
            0.0,
            10.0,
        ),
        Param(
            "startup_timeout_s", 300.0, "how long to wait for the subscribers and the captioner", 0.0, 86400.0
        ),
        Param("caption_timeout_s", 120.0, "how long to wait for a report that is due", 0.0, 86400.0),
    ),
    "dv_camera": (
        Param(
            "source",
            "camera",
            "what is published: camera, camera:SERIAL_NUMBER, tcp://HOST:PORT or a FILE.aedat4",
        ),
        Param("frames", "", "address of a network stream's frames as HOST:PORT, empty for none"),
        Param("roi", "", "region of an attached camera as X,Y,WIDTH,HEIGHT in pixels, empty for all of it"),
        Param("biases", "", "biases of an attached camera as NAME=VALUE or NAME=COARSE/FINE, comma between"),
    ),
}


def check_values(node: str, values: Mapping[Any, object]) -> dict[str, Value]:
    """All parameters of a node with `values` over the defaults; raises InputError for a bad value or name."""
    params = {param.name: param for param in PARAMS[node]}
    checked = {param.name: param.default for param in PARAMS[node]}
    for name, value in values.items():
        if name not in params:
            raise InputError(f"{node} has no parameter {name}: {nearest(str(name), list(params))}")
        try:
            checked[name] = params[name].check(value)
        except InputError as error:
            raise InputError(f"{node}: {error}") from None
    return checked


def read_names(text: object) -> tuple[str, ...]:
    """The names in a text that has commas between them."""
    return tuple(name for part in str(text).split(",") if (name := part.strip()))


def read_number(name: str, text: str) -> float:
    """The number that an argument is given as text; raises InputError where it is none."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} is '{text}', but it must be a number: give one like {name}:=0.5") from None


def read_flag(name: str, text: str) -> bool:
    """The truth value that an argument is given as text; raises InputError where it is none."""
    if text.lower() not in ("true", "false"):
        raise InputError(f"{name} is '{text}', but it must be true or false: give one like {name}:=true")
    return text.lower() == "true"


def nearest(name: str, known: Sequence[str]) -> str:
    """The hint that ends a sentence about an unknown name."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"it must be one of {', '.join(known)}"


def attributes(node: str, values: Mapping[str, Value]) -> SimpleNamespace:
    """All parameters of a node as attributes, that of `models.dtype` as `models_dtype`."""
    return SimpleNamespace(**{param.attribute: values[param.name] for param in PARAMS[node]})


def declare(
    node: Node, kind: str, on_change: Callable[[SimpleNamespace], None] = lambda params: None
) -> SimpleNamespace:
    """Declare the parameters of a node that was made with `automatically_declare_parameters_from_overrides`.

    Returns their values as `attributes`. All but the live ones are read-only from then on; when live ones
    are set, the attributes follow and `on_change` is told, whose InputError refuses them. Raises
    InputError for an override that is of the wrong type, out of range or unknown.
    """
    from rcl_interfaces.msg import SetParametersResult

    # Any, because rclpy of Jazzy declares values and returns parameters.
    overrides: Mapping[str, Any] = node.get_parameters_by_prefix("")
    given = {name: parameter.value for name, parameter in overrides.items()}
    # What ROS itself declares is none of ours.
    own = {
        name: value for name, value in given.items() if name not in ROS_PARAMS and "qos_overrides" not in name
    }
    values = check_values(kind, own)
    for param in PARAMS[kind]:
        if param.name in own:
            node.undeclare_parameter(param.name)
        node.declare_parameter(param.name, values[param.name], param.descriptor(), ignore_override=True)
    params = attributes(kind, values)
    live = {param.name: param for param in PARAMS[kind] if param.live}

    def set_live(parameters: Sequence[Parameter]) -> SetParametersResult:
        before = dict(vars(params))
        try:
            news = {p.name: live[p.name].check(p.value) for p in parameters if p.name in live}
            vars(params).update({live[name].attribute: value for name, value in news.items()})
            if news:
                on_change(params)
        except InputError as error:
            vars(params).update(before)
            return SetParametersResult(successful=False, reason=f"{kind}: {error}")
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(set_live)
    return params


ROS_PARAMS = ("use_sim_time", "start_type_description_service")
