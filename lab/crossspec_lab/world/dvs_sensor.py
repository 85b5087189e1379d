"""A DVS pixel array: contrast thresholds of log intensity with mismatch, refractory period, and noise.

The model is that of ESIM (Rebecq et al., CoRL 2018): log intensity is linear between pictures, and every
crossing of a pixel's threshold makes an event at its interpolated time. Rates and mismatch are of the order
that v2e (Hu et al., 2021) reports.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from crossspec_ros.events.batch import EventBatch

_THRESHOLD_ON, _THRESHOLD_OFF, _MISMATCH = 0.21, 0.23, 0.03
_REFRACTORY_US, _READOUT_US = 600, 125
_LOG = np.log(np.arange(256, dtype=np.float32) + 12.0)


class DvsSensor:
    """State of every pixel between pictures; `step` turns the next picture into events."""

    def __init__(self, rgb: NDArray[np.uint8], t_us: int, seed: int, noise_hz: float = 0.08) -> None:
        self.height, self.width = rgb.shape[:2]
        self._rng = np.random.default_rng([seed, 0xD75])
        pixels = self.height * self.width
        spread = self._rng.normal(1.0, _MISMATCH, (2, pixels)).clip(0.7, 1.3).astype(np.float32)
        self._on, self._off = _THRESHOLD_ON * spread[0], _THRESHOLD_OFF * spread[1]
        self._log = _log_intensity(rgb)
        # Pixels start anywhere between their thresholds, as in the middle of a recording.
        phase = self._rng.uniform(-0.5, 0.5, pixels).astype(np.float32)
        self._reference = self._log + phase * _THRESHOLD_ON
        self._last = np.full(pixels, -(10**9), np.int64)
        self._t, self._noise_hz = t_us, noise_hz

    def step(self, rgb: NDArray[np.uint8], t_us: int) -> EventBatch:
        """Return the events since the previous time, in order; `rgb` (H, W, 3) is the picture at `t_us`."""
        new, old, dt = _log_intensity(rgb), self._log, t_us - self._t
        change = new - self._reference
        times: list[np.ndarray] = []
        places: list[np.ndarray] = []
        signs: list[np.ndarray] = []
        for sign, threshold in ((1, self._on), (-1, self._off)):
            hot = np.flatnonzero(sign * change >= threshold)
            crossings = (sign * change[hot] / threshold[hot]).astype(np.int32)
            slope = new[hot] - old[hot]
            for k in range(1, int(crossings.max(initial=0)) + 1):
                pick = crossings >= k
                pixel, rise = hot[pick], slope[pick]
                level = self._reference[pixel] + sign * k * threshold[pixel]
                fraction = np.where(
                    np.abs(rise) > 1e-6, (level - old[pixel]) / np.where(rise == 0, 1, rise), 1.0
                )
                t = self._t + np.ceil(np.clip(fraction, 0, 1) * dt).astype(np.int64).clip(1)
                rested = t - self._last[pixel] >= _REFRACTORY_US
                pixel, t = pixel[rested], t[rested]
                self._last[pixel] = t
                times.append(t)
                places.append(pixel)
                signs.append(np.full(len(t), sign > 0, np.uint8))
            self._reference[hot] += sign * crossings * threshold[hot]
        noise = int(self._rng.poisson(self._noise_hz * change.size * dt * 1e-6))
        times.append(self._t + 1 + self._rng.integers(0, dt, noise))
        places.append(self._rng.integers(0, change.size, noise))
        signs.append(self._rng.integers(0, 2, noise).astype(np.uint8))
        self._log, self._t = new, t_us
        t, place, p = np.concatenate(times), np.concatenate(places), np.concatenate(signs)
        # The sensor scans its rows: all crossings since the last scan leave together, row by row.
        t -= t % _READOUT_US
        order = np.lexsort((place, t))
        place = place[order]
        return EventBatch(
            t[order],
            (place % self.width).astype(np.uint16),
            (place // self.width).astype(np.uint16),
            p[order],
            self.width,
            self.height,
        )


def _log_intensity(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    return _LOG[cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)].ravel()
