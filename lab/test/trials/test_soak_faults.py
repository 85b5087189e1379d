"""What the soak with faults makes of windows, reports and their lack."""

from __future__ import annotations

from crossspec_lab.trials.soak_faults import Turn, told


def closed(second: int) -> dict[str, object]:
    return {"closed_s": float(second)}


def report(second: int, source: str = "target", events: int = 9, missing: int = 0) -> dict[str, object]:
    values = {"source": source, "events": events, "missing_images": missing}
    return {"report_s": float(second), "values": values}


def test_every_window_is_captioned_told_otherwise_or_missed() -> None:
    turns = [Turn("none", 100.2, 0.5), Turn("killed", 110.2, 4.0), Turn("none", 120.2, 0.7)]
    lines = [{"ready": True}]
    for second in range(101, 131):
        # Two seconds without windows after the kill, one window skipped, one never reported.
        if second in (112, 113):
            continue
        lines.append(closed(second))
        if second != 117:
            lines.append(report(second, "" if second == 115 else "target"))
    rows = told(turns, lines, end_s=135)
    assert rows["none"] == {
        "times": 2,
        "windows": 19,
        "captioned": 19,
        "told_otherwise": 0,
        "unreported": 0,
        "without_window_s": 0,
        "again_s": 0.7,
    }
    assert rows["killed"] == {
        "times": 1,
        "windows": 8,
        "captioned": 6,
        "told_otherwise": 1,
        "unreported": 1,
        "without_window_s": 2,
        "again_s": 4.0,
    }
