"""Event-keyed retrieval: the caption of the earlier window whose events look most like those of this one."""

from __future__ import annotations

from collections import deque

import numpy as np


class SimilarWindows:
    """Remembers the last `capacity` windows by their pooled event features (width,)."""

    def __init__(self, capacity: int) -> None:
        self._features: deque[np.ndarray] = deque(maxlen=capacity)
        self._captions: deque[tuple[int, ...]] = deque(maxlen=capacity)

    def add(self, feature: np.ndarray, caption: tuple[int, ...]) -> None:
        """Remember a captioned window; features of another width mean another model and start anew."""
        if self._features and self._features[0].shape != feature.shape:
            self._features.clear()
            self._captions.clear()
        self._features.append(feature)
        self._captions.append(caption)

    def nearest(self, feature: np.ndarray) -> tuple[int, ...]:
        """The caption of the most similar window, of equals the latest; none before the first.

        Pooled features of all windows nearly coincide, so what counts is the cosine of what sets them apart:
        of the features standardised over the windows in memory.
        """
        if not self._features or self._features[0].shape != feature.shape:
            return ()
        known = np.array(self._features)
        centre, spread = known.mean(0), known.std(0) + 1e-6
        keys, query = (known - centre) / spread, (feature - centre) / spread
        lengths = np.linalg.norm(keys, axis=1) * np.linalg.norm(query) + 1e-6
        alike = keys @ query / lengths
        return self._captions[len(alike) - 1 - int(np.argmax(alike[::-1]))]
