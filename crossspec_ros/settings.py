"""The settings of every node and of `crossspec serve`: names, defaults, ranges and descriptions.

This is the only declaration. ROS descriptors, command-line flags, launch arguments and docs/reference derive
from it. The file needs the standard library only, because launch files import it.

A setting's `group` makes it a launch argument and a command-line flag: of the commands that read a recording
("recording"), name models ("models"), caption ("captions") or replay ("replay"). Group "launch" has no flags.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossspec_ros.parameter import Settings, setting

DTYPES = ("float32", "bf16", "int8", "nf4")
"""Dtypes of the models, from the largest to the smallest."""
ENGINES = TORCH, LLAMA_CPP = ("torch", "llama.cpp")
"""Libraries that run a target's language model."""
DEVICES = ("cpu", "cuda", "cuda:N")
DEVICE = r"cpu|cuda(:\d+)?"
"""Pattern of `DEVICES`."""
NO_DRAFT = "none"
"""Value of `draft` for a target without a draft."""
PROPOSERS = MEMORY, EVENT_DRAFT, GRAMMAR = ("memory", "event_draft", "grammar")
"""Proposers that the captioner's parameter may name, the fastest first."""
REHEARSAL = "rehearsal"
WHEN = ("always", "changed", "asked")
MODES = ("prefill_hidden", "autoregressive")
GENERATIONS = ("greedy", "published")
UNITS = ("s", "ms", "us", "ns")
"""Units of time of a recording."""
EVENT_TYPES = ("event_camera_msgs/EventPacket", "dvs_msgs/EventArray", "dv_ros2_msgs/EventArray")
IMAGE_TRANSPORTS = ("raw", "compressed")


@dataclass(frozen=True)
class _Target(Settings):
    """The target, which the synchronizer, the captioner and the server load or read the config of."""

    target: str = setting(
        "",
        "Folder, GGUF file or hub id (ORG/NAME or ORG/NAME@REVISION) of the target, or the address "
        "grpcs://HOST:PORT (grpc:// without TLS) of a server that crossspec serve runs. Empty: the target in "
        "models.folder.",
        group="models",
    )


@dataclass(frozen=True)
class _Loaded(_Target):
    """How the captioner and the server load models."""

    models_dtype: str = setting(DTYPES[0], "Dtype of the models.", choices=DTYPES, group="captions")
    models_engine: str = setting(
        TORCH,
        "Library that runs the target's language model. llama.cpp is faster on a CPU. It runs float32, bf16 "
        "and int8, and needs the packages llama-cpp-python and gguf.",
        choices=ENGINES,
        group="captions",
    )
    models_device: str = setting(
        "auto",
        "Device of the models. auto is the first GPU, or the CPU if there is none.",
        choices=("auto", *DEVICES),
        pattern=f"auto|{DEVICE}",
        group="captions",
    )
    threads: int = setting(1, "CPU threads of each model.", 1, 256)


@dataclass(frozen=True)
class _Windows(Settings):
    """The windows, on which all nodes of a graph agree."""

    window_phase_s: float = setting(
        0.0, "Seconds after each full second of ROS time when windows end. Equal in all nodes.", 0.0, 0.999
    )


@dataclass(frozen=True)
class PairSettings(_Windows, _Target):
    """The models and the server, which the synchronizer reads the sizes of images from."""

    models_folder: str = setting(
        "", "Folder with the folders target and draft. Empty: the tiny pair.", group="models", flag="models"
    )
    draft: str = setting(
        "",
        f"Folder or hub id of the event draft, or {NO_DRAFT}. Empty: that in models.folder.",
        group="models",
    )
    link_robot: str = setting("", "Name of this robot at the target's server. Empty: the name of the host.")
    link_token_file: str = setting("", "File with this robot's token, if the server requires one.")
    link_ca_file: str = setting("", "PEM file of trusted certificates for grpcs. Empty: those of the system.")
    link_timeout_s: float = setting(
        1.0, "Seconds that a pass of the server may take before the event draft is published.", 0.05, 60.0
    )


@dataclass(frozen=True)
class _Stream(_Windows):
    """What the player must know of the synchronizer."""

    max_lateness_s: float = setting(
        0.2, "Seconds of data time that a window waits for the slower stream. Equal in all nodes.", 0.0, 10.0
    )


@dataclass(frozen=True)
class SynchronizerSettings(_Stream, PairSettings):
    """How messages become windows, and how many messages may wait."""

    node = "synchronizer"

    event_type: str = setting(
        "", "Message type of the topic events. Empty: that of its publisher.", choices=EVENT_TYPES
    )
    image_transport: str = setting(
        "",
        "Messages of the topic image: Image (raw) or CompressedImage. Empty: those of its publisher, or else "
        "of the publisher of image/compressed.",
        choices=IMAGE_TRANSPORTS,
    )
    event_images: int = setting(5, "Event images per window.", 1, 32)
    frames: int = setting(0, "Frame slots per window. 0: as many as the target takes.", 0, 64)
    frame_size: int = setting(
        -1, "Shortest edge of frames in pixels. 0: as in the camera. -1: as the target needs.", -1, 4096
    )
    event_image_size: int = setting(
        -1, "Shortest edge of event images in pixels. 0: as in the sensor. -1: as the draft needs.", -1, 4096
    )
    queue_size: int = setting(
        2000, "Messages that may wait for decoding; newer ones are dropped.", 1, 1_000_000
    )
    queue_mb: int = setting(256, "Megabytes of messages that may wait for decoding.", 1, 65_536)


@dataclass(frozen=True)
class CaptionerSettings(PairSettings, _Loaded):
    """Which models caption, which questions they answer, and how."""

    node = "captioner"

    models_draft_device: str = setting(
        "", "Device of the draft. Empty: the target's.", choices=DEVICES, pattern=DEVICE, group="captions"
    )
    question: str = setting(
        "What are the key elements in this scene?", "Question about each window.", live=True, group="captions"
    )
    questions: tuple[str, ...] = setting(
        (),
        "Standing questions about every captioned window, each with its choices: 'Is it dark? [yes, no]'. "
        "The word first behind the choices lets the target answer it before the caption.",
        live=True,
        group="captions",
    )
    schema: str = setting(
        "", "JSON schema of the captions: text or a file. Empty: sentences.", live=True, group="captions"
    )
    when: str = setting(
        WHEN[0],
        "Windows to caption: always all; changed those that differ from the one captioned last; asked none "
        "before a question about the newest one.",
        choices=WHEN,
        live=True,
        group="captions",
    )
    changed_contrast: float = setting(
        0.14,
        "Change of a cell's log-brightness, averaged over a window, that counts as changed. A cell is a "
        "sixteenth of the frame's height; 0.14 is 15 percent.",
        0.0,
        5.0,
        live=True,
    )
    changed_max_s: float = setting(10.0, "Seconds until a window counts as changed.", 1.0, 86400.0, live=True)
    mode: str = setting(
        MODES[0],
        "Decoding: prefill_hidden, or autoregressive (the target without reading ahead and without drafts).",
        choices=MODES,
        live=True,
        group="replay",
    )
    max_new_tokens: int = setting(64, "Maximum length of a caption in tokens.", 1, 2048, live=True)
    deadline_s: float = setting(
        0.0, "Seconds after the end of its window at which a caption is cut. 0: never.", 0.0, 60.0, live=True
    )
    proposers: tuple[str, ...] = setting(
        PROPOSERS, "Proposers of draft tokens. An empty list is nobody.", choices=PROPOSERS, live=True
    )
    rehearse: bool = setting(
        True, "Let the idle target caption the frames so far of an open window as a draft.", live=True
    )
    max_nodes: int = setting(
        128, "Maximum draft tokens per verification pass. The policy may use fewer.", 0, 128, live=True
    )
    least_prob: float = setting(1e-4, "Minimum probability of a verified draft token.", 0.0, 1.0, live=True)
    generation: str = setting(
        GENERATIONS[0],
        "Sampling: greedy follows temperature and top_p; published follows the target's "
        "generation_config.json, without its penalties.",
        choices=GENERATIONS,
        live=True,
        group="replay",
    )
    temperature: float = setting(0.0, "Sampling temperature. 0: the likeliest token.", 0.0, 10.0, live=True)
    top_p: float = setting(1.0, "Share of the probability that sampling keeps.", 0.01, 1.0, live=True)
    seed: int = setting(0, "Seed of sampling.", 0, 2**31 - 1, live=True)
    memory: str = setting(
        "auto",
        "File that keeps the caption memory between sessions. auto: one for each target in the user's state "
        "folder. none: no file.",
        group="launch",
    )
    autostart: bool = setting(True, "Configure and activate on startup.")
    stages: bool = setting(
        False, "Log the time of each stage, and the accepted tokens of each proposer.", group="replay"
    )
    rerun: str = setting(
        "",
        "Rerun sink: viewer, the URL rerun+http://HOST:9876/proxy of a viewer, or a file. Empty: none. Needs "
        "the package rerun-sdk.",
        group="captions",
    )
    compare: bool = setting(
        False, "Caption each window with the target alone as well, and log the speedup.", group="replay"
    )

    @property
    def enabled_proposers(self) -> tuple[str, ...]:
        """Names of the proposers that may draft."""
        return (*(REHEARSAL,) * self.rehearse, *self.proposers)


@dataclass(frozen=True)
class PlayerSettings(_Stream):
    """Which recording the player plays, how fast, and what it waits for."""

    node = "dsec_player"

    path: str = setting("", "Recording, of a format that `crossspec replay --help` lists.")
    images: str = setting(
        "",
        "Folder of PNG or JPEG files, with their times in a timestamps.txt, to play as the images. Empty: "
        "those of the recording.",
        group="recording",
    )
    events_topic: str = setting("", "Event topic of a bag. Empty: as in crossspec info.", group="recording")
    image_topic: str = setting("", "Image topic of a bag. Empty: as in crossspec info.", group="recording")
    columns: str = setting(
        "",
        "Columns of a table in order, as t,x,y,p. Empty: those of its header or layout.",
        group="recording",
    )
    time_unit: str = setting(
        "",
        "Unit of the times in text, arrays and HDF5. Empty: that of the header or layout.",
        choices=UNITS,
        group="recording",
    )
    rate: float = setting(1.0, "Speed of the replay. 1: as recorded.", 0.01, 100.0, group="replay")
    loop: bool = setting(False, "Start again at the end.", group="launch")
    clock: bool = setting(
        False, "Publish the time of the recording as /clock, unless another node does.", group="launch"
    )
    wait_for_captions: bool = setting(True, "Start once the captioner is active, end after its last report.")
    every_window: bool = setting(False, "Pause while the captioner is a window behind: it skips none.")
    startup_timeout_s: float = setting(300.0, "Seconds to wait for subscribers and captioner.", 0.0, 86400.0)
    caption_timeout_s: float = setting(120.0, "Seconds to wait for a report.", 0.0, 86400.0)


@dataclass(frozen=True)
class CameraSettings(Settings):
    """The camera or network stream that dv_camera publishes."""

    node = "dv_camera"

    source: str = setting(
        "camera", "Source of the events: camera, camera:SERIAL_NUMBER or tcp://HOST:PORT.", group="launch"
    )
    frames_source: str = setting("", "HOST:PORT of a network stream's frames. Empty: none.", group="launch")


@dataclass(frozen=True)
class ServeSettings(_Loaded):
    """The options of `crossspec serve`, and the `args` in config/serve.yaml."""

    node = "server"

    robots: int = setting(8, "Maximum number of robots. Each costs KV cache.", 1, 64)
    proposers: tuple[str, ...] = setting(
        (REHEARSAL, MEMORY, EVENT_DRAFT), "Proposers of draft tokens.", choices=(REHEARSAL, *PROPOSERS)
    )
    memories: str = setting("", "Folder that keeps the caption memory of each robot. Empty: none.")
    fleet_memory: bool = setting(True, "Let each robot draft from the captions of all robots.")
    shared_passes: bool = setting(True, "Verify several robots in one forward pass.")
    idle_s: float = setting(60.0, "Seconds of silence after which a robot is disconnected.", 0.1, 86400.0)
    tokens: str = setting("", "File with a line ROBOT TOKEN for each robot. Empty: any robot may connect.")


NODES: dict[str, type[Settings]] = {
    kind.node: kind for kind in (SynchronizerSettings, CaptionerSettings, PlayerSettings, CameraSettings)
}
