from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest
from event_samples import FIELDS, assert_equal, batch_of, random_batch
from recording_samples import DSEC_OFFSET_US, DSEC_START_US, write_sequence

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.dsec import DsecRecording, DsecSequence, write_events_h5
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.survey import survey


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=DSEC_START_US, duration_us=95_000, width=320, height=240)


@pytest.fixture
def sequence(tmp_path, events):
    return write_sequence(tmp_path / "drive", events)


def test_the_file_has_dsecs_layout(sequence, events):
    with h5py.File(sequence / "events/left/events.h5") as file:
        kinds = {name: str(file[f"events/{name}"].dtype) for name in FIELDS}
        assert kinds == {"t": "uint32", "x": "uint16", "y": "uint16", "p": "uint8"}
        assert file["events/t"]._filters.keys() == {"32001"}
        assert file["t_offset"][()] == DSEC_OFFSET_US and file["t_offset"].shape == ()
        t, index = file["events/t"][:].astype(np.int64), file["ms_to_idx"][:]
    np.testing.assert_array_equal(t, events.t - DSEC_OFFSET_US)
    # As DSEC's documentation defines it.
    assert index.dtype == np.uint64 and index[0] == 0 and len(index) == t[-1] // 1000 + 1
    ms = np.arange(len(index)) * 1000
    assert np.all(t[index] >= ms) and np.all((index == 0) | (t[index - 1] < ms))


def test_it_reads_its_events(sequence, events):
    dsec = DsecSequence(sequence)
    assert (dsec.events.width, dsec.events.height) == (320, 240)
    assert (dsec.events.start_us, dsec.events.end_us) == (events.t[0], events.t[-1])
    assert_equal(EventBatch.concat(list(dsec.events.batches())), events)


def test_a_sequence_of_dsecs_own_camera_needs_no_attributes(sequence):
    with h5py.File(sequence / "events/left/events.h5", "a") as file:
        file.attrs.clear()
    dsec = DsecSequence(sequence)
    assert (dsec.events.width, dsec.events.height) == (640, 480)


@pytest.fixture
def of_dsec_det(sequence):
    (sequence / "images/left/rectified").rename(sequence / "images/left/distorted")
    return sequence


def test_frames_of_dsec_det_are_taken_where_none_are_rectified(of_dsec_det):
    report = survey(of_dsec_det)
    assert [topic["messages"] for topic in report["topics"] if topic["kind"] == "images"] == [3]
    assert "the frames are those of images/left/distorted" in report["findings"][0]
    with pytest.raises(InputError, match="in the events' view already: leave out --aligned"):
        DsecRecording(of_dsec_det, aligned=True)


def test_of_two_sets_of_frames_the_other_is_told(sequence):
    shutil.copytree(sequence / "images/left/rectified", sequence / "images/left/distorted")
    told = "images/left/distorted holds frames too"
    assert any(told in finding for finding in survey(sequence)["findings"])


def test_frames_of_another_camera_are_told(of_dsec_det):
    (of_dsec_det / "images/left").rename(of_dsec_det / "images/right")
    assert any(
        "images/right/distorted', which are not played" in told for told in survey(of_dsec_det)["findings"]
    )


def test_the_right_cameras_are_told(sequence):
    shutil.copytree(sequence / "events/left", sequence / "events/right")
    report = survey(sequence)
    assert f"events/right of '{sequence}' are not played" in report["findings"][0]
    assert [topic["messages"] for topic in report["topics"] if topic["kind"] == "images"] == [3]


def test_the_times_of_a_folder_in_a_sequence_are_found(of_dsec_det):
    report = survey(of_dsec_det, asked=ReadOptions(images=of_dsec_det / "images/left/distorted"))
    assert "3 images of " in report["format"] and "images/timestamps.txt" in report["format"]


def test_frames(sequence):
    dsec = DsecSequence(sequence)
    assert dsec.frame_stamps_ns.tolist() == [(DSEC_START_US + 50_000 * i) * 1000 for i in range(3)]
    np.testing.assert_array_equal(dsec.frame(2), np.full((24, 32, 3), (20, 20, 30), np.uint8))
    assert dsec.frame_bytes(0).startswith(b"\x89PNG")


def test_times_that_do_not_fit_are_refused(tmp_path):
    for t in ([5, 4], [1 << 32], [-1], []):
        zeros = np.zeros(len(t))
        with pytest.raises(ValueError, match="71 minutes"):
            write_events_h5(tmp_path / "events.h5", batch_of(t, zeros, zeros, zeros), 0)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_named(sequence, keep):
    file = sequence / "events/left/events.h5"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(InputError, match=r"events\.h5' is truncated or damaged .* copy it again"):
        DsecSequence(sequence)


def test_a_damaged_chunk_is_named_when_it_is_read(sequence, events):
    path = sequence / "events/left/events.h5"
    with h5py.File(path) as file:
        chunk = file["events/x"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"events\.h5' is truncated or damaged"):
        DsecSequence(sequence)


@pytest.mark.parametrize(
    ("missing", "found"), [("t_offset", -DSEC_OFFSET_US), ("ms_to_idx", 0), ("events/x", None)]
)
def test_only_the_events_themselves_must_be_there(sequence, events, missing, found):
    with h5py.File(sequence / "events/left/events.h5", "a") as file:
        del file[missing]
    if found is None:
        with pytest.raises(InputError, match=r"no events in a layout that is known, .*events/y \(5000,\)"):
            DsecSequence(sequence)
    else:
        assert_equal(next(DsecSequence(sequence).events.batches()), events.at(events.t + found))


@pytest.mark.parametrize("shape", [(4999,), (5001,), (5000, 2)])
def test_data_sets_of_unequal_length_are_named(sequence, shape):
    with h5py.File(sequence / "events/left/events.h5", "a") as file:
        del file["events/x"]
        file["events/x"] = np.zeros(shape, np.uint16)
    with pytest.raises(InputError, match=r"events\.h5' has .*(differ in length|shape \(5000, 2\))"):
        DsecSequence(sequence)


def test_frames_and_their_times_must_agree(sequence):
    (sequence / "images/left/rectified/000001.png").unlink()
    with pytest.raises(InputError, match="2 frames but 3 times"):
        DsecSequence(sequence)
    for stamps in ("soon\n", f"{2**64}\n", f"{2**63 - 1}\n", "-1\n"):
        (sequence / "images/timestamps.txt").write_text(stamps)
        with pytest.raises(InputError, match=r"timestamps\.txt' cannot be read"):
            DsecSequence(sequence)
    shutil.rmtree(sequence / "images")
    assert len(DsecSequence(sequence).frame_stamps_ns) == 0


def test_a_damaged_frame_is_named(sequence):
    (sequence / "images/left/rectified/000001.png").write_bytes(b"\x89PNG")
    with pytest.raises(InputError, match=r"000001\.png' is no picture"):
        DsecSequence(sequence).frame(1)


def test_a_link_to_what_is_no_picture_is_named(sequence, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("TOP SECRET")
    frame = sequence / "images/left/rectified/000001.png"
    frame.unlink()
    frame.symlink_to(secret)
    with pytest.raises(InputError, match=r"000001\.png' cannot be read \(it is neither PNG nor JPEG\)"):
        DsecSequence(sequence).frame_bytes(1)
