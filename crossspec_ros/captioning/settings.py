"""The parameters of the nodes: what they mean, which values they take, and their values, typed.

Each node has a class. Its fields are the parameters' names, types, defaults and meaning, stated once: the
nodes declare them, the CLI and launch check them before anything starts, and the reference is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossspec_ros.captioning.params import Settings, param, read_names
from crossspec_ros.drafting.policy import DEFAULT_LIMITS
from crossspec_ros.drafting.proposer import REHEARSAL, USUAL
from crossspec_ros.models.placement import DEVICE, DEVICES, DTYPES, ENGINES
from crossspec_ros.recordings.options import UNITS
from crossspec_ros.windows.change import WHEN, GateSettings

EVENT_TYPES = ("event_camera_msgs/EventPacket", "dvs_msgs/EventArray", "dv_ros2_msgs/EventArray")
IMAGE_TRANSPORTS = ("raw", "compressed")
MODES = ("prefill_hidden", "autoregressive")
GENERATIONS = ("greedy", "published")


@dataclass(frozen=True)
class SynchronizerSettings(Settings):
    """Ways of making windows of messages, and how many may wait for that."""

    node = "synchronizer"

    event_type: str = param(EVENT_TYPES[0], "message type of the topic events", choices=EVENT_TYPES)
    image_transport: str = param(
        "raw", "whether the topic image carries Image or CompressedImage", choices=IMAGE_TRANSPORTS
    )
    event_images: int = param(5, "event images per window", 1, 32)
    frames: int = param(8, "frame slots per window", 1, 64)
    frame_size: int = param(0, "shortest edge of published frames in pixels, 0 keeps the camera's", 0, 4096)
    event_image_size: int = param(
        0, "shortest edge of published event images in pixels, 0 keeps the sensor's", 0, 4096
    )
    max_lateness_s: float = param(
        0.2, "how long a window waits for the slower stream, in seconds of data time", 0.0, 10.0
    )
    window_phase_s: float = param(
        0.0, "how long after each full second of ROS time windows end, in seconds", 0.0, 0.999
    )
    queue_size: int = param(
        2000, "messages that may wait for decoding before new ones are dropped", 1, 1_000_000
    )
    queue_mb: int = param(256, "megabytes of messages that may wait for decoding likewise", 1, 65_536)


@dataclass(frozen=True)
class CaptionerSettings(Settings):
    """Which models caption, what is asked, and how the captions are made."""

    node = "captioner"

    models_folder: str = param(
        "", "folder with the target and draft checkpoints, empty for the tiny pair", name="models.folder"
    )
    target: str = param(
        "",
        "folder, GGUF file or hub id, ORG/NAME or ORG/NAME@REVISION, of the target alone, empty for that in "
        "models.folder; or grpcs://HOST:PORT, or "
        "grpc:// without TLS, of a server that crossspec serve runs",
    )
    draft: str = param(
        "", "folder or hub id of the draft alone, empty for that in models.folder, none for no draft"
    )
    models_dtype: str = param(
        DTYPES[0], "numbers that both models are loaded in", choices=DTYPES, name="models.dtype"
    )
    models_engine: str = param(
        ENGINES[0],
        "library that runs the target's language model; llama.cpp is quicker on a CPU, takes float32, bf16 "
        "and int8, and needs the packages llama-cpp-python and gguf",
        choices=ENGINES,
        name="models.engine",
    )
    models_device: str = param(
        "auto",
        "where the models run; auto is the first GPU, or the CPU where there is none",
        choices=("auto", *DEVICES),
        pattern=f"auto|{DEVICE}",
        name="models.device",
    )
    models_draft_device: str = param(
        "",
        "where the draft runs, empty for where the target does",
        choices=DEVICES,
        pattern=f"({DEVICE})?",
        name="models.draft_device",
    )
    question: str = param(
        "What are the key elements in this scene?", "what is asked about every window", live=True
    )
    questions: str = param(
        "",
        "standing questions, answered about every captioned window after its caption, with | or an end of "
        "line between them, each with its choices in brackets behind it, as in [yes, no]; with first behind "
        "the brackets it is answered before the caption",
        live=True,
    )
    schema: str = param(
        "",
        "JSON schema that captions follow, as text or as the path of a file, empty for sentences",
        live=True,
    )
    when: str = param(
        WHEN[0],
        "windows that are captioned: always all; changed those that show something else than the one "
        "captioned last; asked none before a question comes, which is about the newest, and standing "
        "questions are not asked then",
        choices=WHEN,
        live=True,
    )
    changed_contrast: float = param(
        GateSettings.contrast,
        "logarithm of the brightness by which a cell, a sixteenth of the frame's height, must differ to have "
        "changed, on average over a window; 0.14 is 15 percent, and more in the dark",
        0.0,
        5.0,
        live=True,
    )
    changed_max_s: float = param(
        GateSettings.max_s,
        "time after which a window is captioned, changed or not, in seconds",
        1.0,
        86400.0,
        live=True,
    )
    mode: str = param(MODES[0], "how the target decodes", choices=MODES, live=True)
    max_new_tokens: int = param(64, "length at which a caption is cut, in tokens", 1, 2048, live=True)
    deadline_s: float = param(
        0.0, "time after its window at which a caption is cut short, 0 for none", 0.0, 60.0, live=True
    )
    proposers: str = param(
        ",".join(USUAL),
        "who may draft for the target, comma between, empty for nobody",
        choices=USUAL,
        several=True,
        live=True,
    )
    rehearse: bool = param(
        True,
        "while a window is open, let the idle target write the caption of its frames so far, which becomes "
        "the draft of the final one",
        live=True,
    )
    max_nodes: int = param(
        DEFAULT_LIMITS.max_nodes,
        "draft tokens that a pass may verify; as many are as pay by its measured cost",
        0,
        128,
        live=True,
    )
    least_prob: float = param(
        DEFAULT_LIMITS.least_prob, "drafts less likely than this are not verified", 0.0, 1.0, live=True
    )
    generation: str = param(
        GENERATIONS[0],
        "published samples as the target's generation_config.json says, but without its penalties; greedy "
        "does as temperature and top_p say",
        choices=GENERATIONS,
        live=True,
    )
    temperature: float = param(
        0.0, "temperature of sampling; 0 always takes the likeliest token", 0.0, 10.0, live=True
    )
    top_p: float = param(1.0, "share of the probability that sampling keeps", 0.01, 1.0, live=True)
    seed: int = param(0, "seed of sampling", 0, 2**31 - 1, live=True)
    memory: str = param(
        "auto",
        "file that keeps the caption memory from session to session; auto is one for each target in the "
        "user's state folder, none keeps nothing",
    )
    link_robot: str = param(
        "", "this robot's name to the server of its target, empty for the host's name", name="link.robot"
    )
    link_token_file: str = param(
        "", "file with this robot's token, where the server asks for one", name="link.token_file"
    )
    link_ca_file: str = param(
        "", "PEM file of certificates to trust for grpcs, empty for the system's", name="link.ca_file"
    )
    link_timeout_s: float = param(
        1.0,
        "how long a pass of a server's target may take; then the event draft's caption is published instead",
        0.05,
        60.0,
        name="link.timeout_s",
    )
    window_phase_s: float = param(0.0, "must be that of the synchronizer, which cuts the windows", 0.0, 0.999)
    threads: int = param(1, "CPU threads of each model", 1, 256)
    autostart: bool = param(True, "configure and activate without being told to")
    stages: bool = param(False, "tell under each caption, and at the end of the run, where the time went")
    rerun: str = param(
        "",
        "where windows are told to Rerun's viewer: viewer opens one, rerun+http://HOST:9876/proxy is one "
        "elsewhere, all else a file to be written, empty is nowhere; needs the package rerun-sdk",
    )
    compare: bool = param(
        False,
        "caption each window with the target alone as well, and tell how much later that was",
    )

    @property
    def asked_proposers(self) -> tuple[str, ...]:
        """Names of the proposers that are asked."""
        return (*(REHEARSAL,) * self.rehearse, *read_names(self.proposers))

    @property
    def gate(self) -> GateSettings:
        """Windows that are captioned."""
        return GateSettings(self.when, self.changed_contrast, self.changed_max_s)


@dataclass(frozen=True)
class PlayerSettings(Settings):
    """Recording that is played, its speed, and what the player waits for."""

    node = "dsec_player"

    path: str = param("", "the recording, of a format that `crossspec replay --help` names")
    images: str = param("", "folder of PNG or JPEG files to take as its images, empty for its own")
    events_topic: str = param("", "the bag's topic of events to play; empty: the best, as `info` tells")
    image_topic: str = param("", "the bag's topic of images to play; empty: the best, as `info` tells")
    columns: str = param(
        "", "names of a table's columns in file order, such as t,x,y,p; empty: those of its header or layout"
    )
    time_unit: str = param(
        "",
        "unit of the times in text, arrays and HDF5; empty: that of the header or layout",
        choices=UNITS,
        pattern=f"({'|'.join(UNITS)})?",
    )
    rate: float = param(1.0, "speed of the replay, 1 is that of the recording", 0.01, 100.0)
    loop: bool = param(False, "start again at the end")
    wait_for_captions: bool = param(
        True, "start only once the captioner is ready, end only after its last report"
    )
    every_window: bool = param(
        False, "pause whenever the captions fall a window behind, so that none is skipped"
    )
    max_lateness_s: float = param(
        0.2, "the synchronizer's, because the sign that the stream is over must come later", 0.0, 10.0
    )
    window_phase_s: float = param(0.0, "must be that of the synchronizer likewise", 0.0, 0.999)
    startup_timeout_s: float = param(
        300.0, "how long to wait for the subscribers and the captioner", 0.0, 86400.0
    )
    caption_timeout_s: float = param(120.0, "how long to wait for a report that is due", 0.0, 86400.0)


@dataclass(frozen=True)
class CameraSettings(Settings):
    """The camera or stream that is published."""

    node = "dv_camera"

    source: str = param("camera", "published source: camera, camera:SERIAL_NUMBER or tcp://HOST:PORT")
    frames: str = param("", "address of a network stream's frames as HOST:PORT, empty for none")


NODES: dict[str, type[Settings]] = {
    kind.node: kind for kind in (SynchronizerSettings, CaptionerSettings, PlayerSettings, CameraSettings)
}
