"""The arguments of both launch files, each told once; launch reads this in a Python that has ROS alone."""

from __future__ import annotations

import re

from crossspec_ros.errors import InputError

_AS_CONFIGURED = "as in config where none is given"

_CAPTIONS = {
    "models": f"folder of the target and draft checkpoints; {_AS_CONFIGURED}",
    "target": f"folder or hub id of the target alone; {_AS_CONFIGURED}",
    "draft": f"folder or hub id of the draft alone, or none for no draft; {_AS_CONFIGURED}",
    "dtype": f"float32, bf16, int8 or nf4, the numbers of both models; {_AS_CONFIGURED}",
    "device": f"auto, cpu, cuda or cuda:N, where the models run; {_AS_CONFIGURED}",
    "draft_device": f"cpu, cuda or cuda:N, where the draft runs; {_AS_CONFIGURED}",
    "fallback": f"true: where the models do not fit, smaller numbers or the CPU are taken; {_AS_CONFIGURED}",
    "generation": f"greedy, or published: sampled as the target's publisher says; {_AS_CONFIGURED}",
    "question": f"what is asked about every window; {_AS_CONFIGURED}",
    "mode": f"prefill_hidden or autoregressive; {_AS_CONFIGURED}",
    "memory": f"file of the caption memory, auto or none; {_AS_CONFIGURED}",
}

OF_LAUNCH = {
    "namespace": "namespace of all nodes and of their topics with relative names; none where none is given",
    "use_sim_time": "true: the nodes take their time from /clock; false where none is given",
    "log_level": "debug, info, warn, error or fatal, of our own loggers; info where none is given",
    "respawn": "true: a node that died is started again after 2 s, unless its input was bad; where none is "
    "given, true for a live camera and false for a replay",
    "shutdown": "true: launch ends when the replay is over, or when a node has failed that is not started "
    "again; where none is given, true only for a replay that is launched by itself",
    "enclave": "under SROS2, the enclave above those of the nodes, /crossspec in config/security; none where "
    "none is given",
    "python": "the Python that runs the nodes; the one that they were built with where none is given",
}
"""Those that launch itself follows; the graph of nodes is the same whatever they are."""

REPLAY = {
    "sequence": "a recording of any format; the sample drive where none is given",
    "events_topic": f"the bag's topic of events to play; {_AS_CONFIGURED}",
    "image_topic": f"the bag's topic of images to play; {_AS_CONFIGURED}",
    "images": f"folder of PNG or JPEG files to take as its images; {_AS_CONFIGURED}",
    "columns": f"columns of a text or table of events, as in t,x,y,p; {_AS_CONFIGURED}",
    "time_unit": f"s, ms, us or ns, of the events' times in text, arrays and HDF5; {_AS_CONFIGURED}",
    "rate": f"speed of the replay, 1 is that of the recording; {_AS_CONFIGURED}",
    "loop": f"true: start again at the end; {_AS_CONFIGURED}",
    **_CAPTIONS,
    "config": "parameters of the nodes; config/replay.yaml where none is given",
    **OF_LAUNCH,
}
"""Arguments of `dsec_replay.launch.py`; those of the graph have the names of `graph.replay_graph`."""

LIVE = {
    "camera": "one of davis, dvxplorer, prophesee, dv_network, topics",
    "source": f"of dv_network: tcp://HOST:PORT or a FILE.aedat4; {_AS_CONFIGURED}",
    "frames": f"of dv_network: HOST:PORT of its frames; {_AS_CONFIGURED}",
    "events": "of topics: where the events are; event_camera/events where none is given",
    "image": "where the images are; the camera's own or camera/image_raw where none is given",
    "image_transport": f"raw or compressed, what is published there; {_AS_CONFIGURED}",
    **_CAPTIONS,
    "config": "parameters of the nodes; config/live.yaml where none is given",
    **OF_LAUNCH,
}
"""Arguments of `live.launch.py`; those of the graph have the names of `live_graph.live_graph`."""


def enclave_arguments(enclave: str, node: str) -> list[str]:
    """What ROS is told so that a node has its own enclave below `enclave`, which may be empty.

    Raises InputError for a bad name.
    """
    if not enclave:
        return []
    if not re.fullmatch(r"(/[A-Za-z_]\w*)+/?", enclave):
        raise InputError(
            f"enclave is {enclave!r}, which is none: give one like /crossspec, of letters, digits and _"
        )
    return ["--enclave", f"{enclave.rstrip('/')}/{node}"]
