"""The settings of every node and of `crossspec serve`: names, defaults, ranges and descriptions.

This is the only declaration. ROS descriptors, command-line flags, launch arguments and docs/reference derive
from it. The file needs the standard library only, because launch files import it.

A setting with a `group` is a launch argument and a command-line flag. The group selects the commands with the
flag: commands that read a recording ("recording"), load models ("models"), caption ("captions") or replay
("replay"). Settings of the group "launch" have no flag.
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
"""Value of `draft` that disables the event draft."""
PROPOSERS = MEMORY, EVENT_DRAFT, GRAMMAR = ("memory", "event_draft", "grammar")
"""Valid names of the captioner's parameter `proposers`, the fastest first."""
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
    """The target of the captioner and the server. The synchronizer reads its config only."""

    target: str = setting(
        "",
        "Folder, GGUF file or hub id (ORG/NAME or ORG/NAME@REVISION) of the target, or the address of a "
        "crossspec serve: grpcs://HOST:PORT, or grpc:// without TLS. Empty: the target in models.folder.",
        group="models",
    )


@dataclass(frozen=True)
class _Loaded(_Target):
    """How the captioner and the server load models."""

    models_dtype: str = setting(DTYPES[0], "Dtype of the models.", choices=DTYPES, group="captions")
    models_engine: str = setting(
        TORCH,
        "Library that runs the target's language model. llama.cpp is faster on a CPU. It supports float32, "
        "bf16 and int8, and needs the extra gguf.",
        choices=ENGINES,
        group="captions",
    )
    models_device: str = setting(
        "auto",
        "Device of the models. auto: the first GPU, or the CPU on a machine without GPUs.",
        choices=("auto", *DEVICES),
        pattern=f"auto|{DEVICE}",
        group="captions",
    )
    threads: int = setting(1, "CPU threads of each model.", 1, 256)


@dataclass(frozen=True)
class _Windows(Settings):
    """The times of windows, which are equal in all nodes of a graph."""

    window_phase_s: float = setting(
        0.0,
        "Seconds after each full second of ROS time at which windows end. Equal in all nodes.",
        0.0,
        0.999,
    )


@dataclass(frozen=True)
class PairSettings(_Windows, _Target):
    """The models or the server. The synchronizer reads the image sizes from them."""

    models_folder: str = setting(
        "", "Folder with the folders target and draft. Empty: the tiny pair.", group="models", flag="models"
    )
    draft: str = setting(
        "",
        f"Folder or hub id of the event draft, or {NO_DRAFT}. Empty: the draft in models.folder.",
        group="models",
    )
    link_robot: str = setting("", "Name of this robot at the target's server. Empty: the host name.")
    link_token_file: str = setting("", "File with this robot's token, if the server requires one.")
    link_ca_file: str = setting("", "PEM file of trusted certificates for grpcs. Empty: the system's.")
    link_timeout_s: float = setting(
        1.0, "Seconds to wait for a pass of the server before publishing the event draft.", 0.05, 60.0
    )


@dataclass(frozen=True)
class _Stream(_Windows):
    """Settings of the synchronizer that the player needs as well."""

    max_lateness_s: float = setting(
        0.2, "Seconds of data time that a window waits for the slower stream. Equal in all nodes.", 0.0, 10.0
    )


@dataclass(frozen=True)
class SynchronizerSettings(_Stream, PairSettings):
    """Assembly of messages into windows, and limits of the message queue."""

    node = "synchronizer"

    event_type: str = setting(
        "", "Message type of the topic events. Empty: the publisher's type.", choices=EVENT_TYPES
    )
    image_transport: str = setting(
        "",
        "Message type of the topic image: Image (raw) or CompressedImage. Empty: that of the publisher of "
        "image, or else of image/compressed.",
        choices=IMAGE_TRANSPORTS,
    )
    event_images: int = setting(0, "Event images a window. 0: the draft's number, or 5 without one.", 0, 32)
    event_image_ms: int = setting(
        0, "Densest ms of a slice that an event image shows. 0: all. No effect if event_images is 0.", 0, 1000
    )
    frames: int = setting(0, "Frame slots per window. 0: the number of the target's frames.", 0, 64)
    frame_size: int = setting(
        -1, "Shortest edge of frames in pixels. 0: the camera's. -1: the target's input size.", -1, 4096
    )
    event_image_size: int = setting(
        -1, "Shortest edge of event images in pixels. 0: the sensor's. -1: the draft's input size.", -1, 4096
    )
    queue_size: int = setting(
        2000, "Maximum number of messages that wait for decoding. Newer ones are dropped.", 1, 1_000_000
    )
    queue_mb: int = setting(256, "Maximum megabytes of messages that wait for decoding.", 1, 65_536)


@dataclass(frozen=True)
class CaptionerSettings(PairSettings, _Loaded):
    """Models, questions and sampling of the captions."""

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
        "Add the word first after the choices to get the answer before the caption.",
        live=True,
        group="captions",
    )
    schema: str = setting(
        "",
        "JSON schema of the captions, as text or a file. Empty: plain sentences.",
        live=True,
        group="captions",
    )
    when: str = setting(
        WHEN[0],
        "Windows to caption. always: all. changed: windows that differ from the last captioned one. asked: "
        "the newest window once a question about it arrives.",
        choices=WHEN,
        live=True,
        group="captions",
    )
    changed_contrast: float = setting(
        0.14,
        "Minimum change of a cell's log-brightness, averaged over a window, for when: changed. A cell is a "
        "sixteenth of the frame's height. 0.14 is 15 percent.",
        0.0,
        5.0,
        live=True,
    )
    changed_max_s: float = setting(
        10.0, "Maximum seconds between two captions for when: changed.", 1.0, 86400.0, live=True
    )
    mode: str = setting(
        MODES[0],
        "Decoding. prefill_hidden: with streaming prefill and drafts. autoregressive: the target without "
        "both, as a baseline.",
        choices=MODES,
        live=True,
        group="replay",
    )
    max_new_tokens: int = setting(64, "Maximum length of a caption in tokens.", 1, 2048, live=True)
    deadline_s: float = setting(
        0.0, "Seconds after the end of a window at which its caption is cut. 0: never.", 0.0, 60.0, live=True
    )
    proposers: tuple[str, ...] = setting(
        PROPOSERS, "Proposers of draft tokens. An empty list disables all.", choices=PROPOSERS, live=True
    )
    rehearse: bool = setting(
        True, "Rehearse: while idle, the target captions the frames so far as a draft.", live=True
    )
    max_nodes: int = setting(
        128, "Maximum draft tokens per verification pass. The policy may use fewer.", 0, 128, live=True
    )
    least_prob: float = setting(1e-4, "Minimum probability of a draft token.", 0.0, 1.0, live=True)
    generation: str = setting(
        GENERATIONS[0],
        "Sampling parameters. greedy: temperature and top_p. published: the target's "
        "generation_config.json, without its penalties.",
        choices=GENERATIONS,
        live=True,
        group="replay",
    )
    temperature: float = setting(0.0, "Sampling temperature. 0: greedy decoding.", 0.0, 10.0, live=True)
    top_p: float = setting(1.0, "Nucleus sampling: cumulative probability to keep.", 0.01, 1.0, live=True)
    seed: int = setting(0, "Seed of sampling.", 0, 2**31 - 1, live=True)
    memory: str = setting(
        "auto",
        "File that stores the caption memory between sessions. auto: one file per target in the user's "
        "state folder. none: no file.",
        group="launch",
    )
    autostart: bool = setting(True, "Configure and activate on startup.")
    stages: bool = setting(
        False, "Log the duration of each stage and the accepted tokens of each proposer.", group="replay"
    )
    rerun: str = setting(
        "",
        "Rerun sink: viewer, the URL rerun+http://HOST:9876/proxy of a viewer, or a file. Empty: none. Needs "
        "the package rerun-sdk.",
        group="captions",
    )
    compare: bool = setting(
        False,
        "Caption each window with the target alone as well (no streaming prefill, no drafts), and log the "
        "speedup.",
        group="replay",
    )

    @property
    def enabled_proposers(self) -> tuple[str, ...]:
        """Names of the proposers that may draft."""
        return (*(REHEARSAL,) * self.rehearse, *self.proposers)


@dataclass(frozen=True)
class PlayerSettings(_Stream):
    """The recording, the speed of the replay, and its synchronization with the captioner."""

    node = "dsec_player"

    path: str = setting("", "Recording, of a format that `crossspec replay --help` lists.")
    images: str = setting(
        "",
        "Folder of PNG or JPEG files and their timestamps.txt, to play as the images. Empty: the images of "
        "the recording.",
        group="recording",
    )
    events_topic: str = setting("", "Event topic of a bag. Empty: as in crossspec info.", group="recording")
    image_topic: str = setting("", "Image topic of a bag. Empty: as in crossspec info.", group="recording")
    columns: str = setting(
        "",
        "Columns of a table in order, as t,x,y,p. Empty: as its header or layout declares.",
        group="recording",
    )
    time_unit: str = setting(
        "",
        "Unit of the times in text, arrays and HDF5. Empty: as the header or layout declares.",
        choices=UNITS,
        group="recording",
    )
    rate: float = setting(1.0, "Speed of the replay. 1: as recorded.", 0.01, 100.0, group="replay")
    loop: bool = setting(False, "Start again at the end.", group="launch")
    clock: bool = setting(
        False, "Publish the recording's time as /clock, unless another node publishes it.", group="launch"
    )
    wait_for_captions: bool = setting(True, "Start with an active captioner, end after its last report.")
    every_window: bool = setting(False, "Pause while the captioner is a window behind, to skip none.")
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
class UsbCameraSettings(Settings):
    """The camera at a USB port that usb_camera publishes."""

    node = "usb_camera"

    serial: str = setting("", "Serial number of the USB camera. Empty: the first found.", group="launch")


@dataclass(frozen=True)
class ServeSettings(_Loaded):
    """The options of `crossspec serve`, and the `args` in config/serve.yaml."""

    node = "server"

    robots: int = setting(8, "Maximum number of robots. Each one needs KV caches.", 1, 64)
    proposers: tuple[str, ...] = setting(
        (REHEARSAL, MEMORY, EVENT_DRAFT), "Proposers of draft tokens.", choices=(REHEARSAL, *PROPOSERS)
    )
    memories: str = setting("", "Folder that stores the caption memory of each robot. Empty: none.")
    fleet_memory: bool = setting(True, "Let each robot draft from the captions of all robots.")
    shared_passes: bool = setting(True, "Verify several robots in one forward pass.")
    idle_s: float = setting(60.0, "Seconds of silence after which a robot is disconnected.", 0.1, 86400.0)
    tokens: str = setting("", "File with one line ROBOT TOKEN per robot. Empty: any robot may connect.")


NODES: dict[str, type[Settings]] = {
    kind.node: kind
    for kind in (SynchronizerSettings, CaptionerSettings, PlayerSettings, CameraSettings, UsbCameraSettings)
}
