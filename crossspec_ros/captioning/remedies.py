"""Remedies: the meaning of each counter of the diagnostics and what to do about it, in one sentence."""

from __future__ import annotations

RISING = {
    # of the event stream
    "missing_packets": "event packets are lost on their way: start all nodes with config/fastdds.xml as "
    "crossspec replay does, or let the camera send fewer events",
    "torn_messages": "event messages end before their data does: check the network and the node that sends "
    "them",
    "torn_words": "event packets end in the middle of a word: check the camera's cable and its driver",
    "impossible_sizes": "event messages name a sensor larger than any: check the width and height that "
    "their sender sets",
    "events_outside_sensor": "events lie outside the sensor: check the width and height that the driver "
    "sends",
    "unknown_words": "event packets hold words that their encoding does not have: check the encoding that "
    "the driver names, then its cable",
    "words_before_time": "events come before the first time of their stream: ignore it in the first second "
    "of a recording, else restart the driver",
    "events_of_another_size": "the event camera's resolution has changed: check its settings, unless you "
    "changed them",
    "late_events": "events come after their window has closed: raise max_lateness_s, or relieve the "
    "driver's machine",
    # of its clock
    "missed_wraps": "packets were missing for so long that the sensor's 24-bit time wrapped: check the "
    "camera's cable and the load of its machine",
    "late_packets": "event packets arrive half a second and more after their events: relieve the driver's "
    "machine or its network",
    "sensor_resets": "the sensor's time has started anew: check the event camera's cable, unless its driver "
    "was restarted",
    # of the frames
    "frames_of_another_size": "the RGB camera's resolution has changed: check its settings, unless you "
    "changed them",
    "late_frames": "frames come after their window has closed: raise max_lateness_s, or relieve the "
    "camera's machine",
    # of both
    "stray_events": "single packets have times far from all others and are dropped: check the event camera's "
    "driver",
    "stray_frames": "single frames have stamps far from all others and are dropped: check the node that "
    "stamps them",
    # of the link to the target's server
    "lost_links": "the link to the target's server broke: check the network and the server",
    "late_passes": "the target's server answers too late: look at its load and the network, or raise "
    "link.timeout_s",
    "target_unreached": "captions are the event draft's, because the target's server does not answer: look "
    "at the part link",
    # of the schema
    "no_json": "captions are no whole JSON of the schema: raise max_new_tokens or let the schema bound its "
    "texts, unless frames are missing",
    # of the windows
    "backward_jumps": "time has jumped back and the windows started anew: synchronise the clocks, unless a "
    "recording began again",
    "forward_jumps": "time has jumped ahead by more than ten seconds and the windows started anew: "
    "synchronise the clocks, unless the camera stood still",
    # of what the windows show
    "rgb_missing": "captions rest on events alone, because no frame comes: check that the RGB camera sends",
    "rgb_frozen": "captions rest on events alone, because all frames are the same while something moves: "
    "restart the RGB camera",
    "rgb_dark": "captions rest on events alone, because the frames are black: uncover the RGB camera, or "
    "raise its exposure",
    "rgb_saturated": "captions rest on events alone, because the frames are white: lower the RGB camera's "
    "exposure",
    "events_missing": "captions rest on frames alone, because no event comes: check that the event camera "
    "sends",
    "events_saturated": "nearly every pixel has events: lower the event camera's sensitivity, or keep "
    "flickering light out of its view",
    "images_missing": "images of the window were lost between the synchronizer and the captioner: start both "
    "on one machine with config/fastdds.xml, as crossspec replay does",
    "images_surplus": "the window had more images than its synchronizer announced: let a single synchronizer "
    "publish here, unless it was restarted",
    # of a camera of our own
    "disconnections": "the connection to the camera was lost and is tried again: check its cable, "
    "its power and its server",
    # of the queue
    "dropped_messages": "messages arrive faster than they are decoded: let the camera send fewer events, or "
    "raise queue_size and queue_mb",
    "unusable_messages": "messages cannot be used: the node's log says why, and what to do",
    # of the node itself
    "failed_callbacks": "messages could not be handled: last_failure and the node's log say which and why; "
    "check who sends them",
    # of the captions
    "dropped_windows": "captions fall behind and windows are skipped: lower max_new_tokens, set deadline_s, "
    "or use a faster machine",
    "failed_windows": "windows cannot be captioned: the node's log has the error; restart the node if it "
    "stays",
    "late_captions": "captions are cut short by the deadline: raise deadline_s, or lower max_new_tokens",
    "unanswered_questions": "standing questions are not all answered before the next window has closed: mark "
    "those that matter with first, or let captions take less time, by a lower max_new_tokens or a smaller "
    "target",
    "missing": "images are lost between the synchronizer and the captioner: start both on one machine with "
    "config/fastdds.xml, as crossspec replay does",
    "late_images": "images arrive after their window was captioned without them: relieve the captioner's "
    "machine",
    "restarts": "earlier windows come again: let a single synchronizer publish here, unless a clock was set "
    "back or a recording began again",
    "surplus_images": "more images come than a window has, or larger ones: let a single synchronizer publish "
    "here, and set its frame_size",
    "size_changes": "images differ in size within a window: let a single synchronizer publish here",
}
"""By counter, for as long as it rises."""

STOPPED = {
    "packets": "no event packets come any more: check the camera's cable, and that its driver runs",
    "frames": "no frames come any more: check the RGB camera's cable, and that its driver runs",
    "windows": "no windows come any more: check both inputs of the synchronizer",
}
"""By counter of what goes through, when it no longer does."""
