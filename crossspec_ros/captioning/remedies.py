"""Warnings of the diagnostics: the cause and the remedy of each fault, in one sentence."""

from __future__ import annotations

RISING = {
    # of the event stream
    "missing_packets": "event packets are lost in transit: start all nodes with config/fastdds.xml, as "
    "crossspec replay does, or let the camera send fewer events",
    "torn_messages": "event messages are truncated: check the node that sends them, and the network",
    "torn_words": "event packets end in the middle of a word: check the camera's cable and driver",
    "impossible_sizes": "event messages have an invalid sensor size: set the driver's width and height",
    "events_outside_sensor": "events lie outside the sensor: set the driver's width and height",
    "unknown_words": "event packets have words of another encoding: check the driver's encoding",
    "words_before_time": "events precede the first time stamp of the stream: restart the driver, unless a "
    "recording has just begun",
    "events_of_another_size": "the event camera's resolution has changed: check its settings",
    "late_events": "events arrive after their window has closed: check the network and the CPU load, or "
    "raise max_lateness_s",
    "stray_events": "event packets with implausible times are dropped: check the event camera's driver",
    # of the event camera's clock
    "missed_wraps": "event packets were missing for 16 s or more: check the event camera's cable and driver",
    "late_packets": "event packets arrive 0.5 s or more after their events: check the network and the CPU "
    "load",
    "sensor_resets": "the event camera's time restarted: check its cable, unless its driver was restarted",
    # of the frames
    "frames_of_another_size": "the RGB camera's resolution has changed: check its settings",
    "late_frames": "frames arrive after their window has closed: check the network and the CPU load, or "
    "raise max_lateness_s",
    "stray_frames": "frames with implausible stamps are dropped: check the RGB camera's driver",
    # of the windows
    "backward_jumps": "the stamps jumped back and the windows restarted: synchronise the clocks, unless a "
    "recording began again",
    "forward_jumps": "the stamps jumped ahead by more than 10 s and the windows restarted: synchronise the "
    "clocks, unless the cameras were off",
    # of messages
    "dropped_messages": "messages arrive faster than they are decoded: let the camera send fewer events, or "
    "raise queue_size and queue_mb",
    "unusable_messages": "invalid messages arrive: read the node's log",
    "failed_callbacks": "callbacks fail: read last_failure, and check the sender of the messages",
    "dropped_packets": "the camera's packets are read too slowly and dropped: relieve the CPU, or let the "
    "camera send fewer events",
    "disconnections": "the connection to the camera was lost: check its cable, power and server",
    # of the contents of windows
    "rgb_missing": "windows have no frames: check the RGB camera, and the synchronizer's row images",
    "rgb_frozen": "all frames of a window are identical while the events show motion: restart the RGB camera",
    "rgb_dark": "the frames are black: uncover the RGB camera, or raise its exposure",
    "rgb_saturated": "the frames are white: lower the RGB camera's exposure",
    "events_missing": "windows have no events: check the event camera, and the synchronizer's row events",
    "events_saturated": "nearly every pixel has events: lower the event camera's sensitivity, or keep "
    "flickering light out of its view",
    "images_missing": "images of a window are lost between synchronizer and captioner: start both on one "
    "machine with config/fastdds.xml, as crossspec replay does",
    "images_surplus": "a window has more images than its synchronizer announced: run one synchronizer only",
    # of the captioner's inputs
    "missing": "images are lost between synchronizer and captioner: start both on one machine with "
    "config/fastdds.xml, as crossspec replay does",
    "late_images": "images arrive after their window was captioned: start synchronizer and captioner on one "
    "machine with config/fastdds.xml",
    "restarts": "earlier windows arrive again: run one synchronizer only, unless a recording began again or "
    "a clock was set back",
    "surplus_images": "a window has more images than were announced: run one synchronizer only",
    "size_changes": "images of a window differ in size: run one synchronizer only",
    # of the captions
    "dropped_windows": "captions fall behind and windows are skipped: lower max_new_tokens, set deadline_s, "
    "or use a faster machine",
    "windows_at_once": "several windows close at once, and only the newest is captioned: check for delays of "
    "the cameras' messages, unless a camera was off or the models have just loaded",
    "failed_windows": "captions fail: read the node's log, and restart the node if they still fail",
    "late_captions": "captions are cut short by the deadline: raise deadline_s, or lower max_new_tokens",
    "no_json": "captions are not complete JSON: raise max_new_tokens, or bound the schema's texts",
    "unanswered_questions": "standing questions are dropped because the next window closes: mark the "
    "important ones with first, or lower max_new_tokens",
    # of the link to the target's server
    "lost_links": "the link to the target's server broke: check the network and the server",
    "late_passes": "the target's server answers too late: check its load and the network, or raise "
    "link.timeout_s",
    "target_unreached": "the target's server does not answer: read the row link",
}
"""Warnings by the name of a total of faults, while it rises."""

STOPPED = {
    "packets": "event packets no longer arrive: check the event camera's cable and driver",
    "frames": "frames no longer arrive: check the RGB camera's cable and driver",
    "windows": "windows no longer arrive: check both inputs of the synchronizer",
}
"""Warnings by the name of a total of messages, when it no longer rises."""
