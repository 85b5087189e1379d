"""Next-token counts of earlier captions by context, with decay, and the draft trees they predict.

The code is compiled, because a tree of 128 nodes needs a hundred distributions. It is one file, because
numba's cache does not notice changes in other files.

A caption is an array of tokens after START. All captions are consecutive in one array. A table maps the hash
of each context to its latest index. Each index is linked to the previous one with the same context. Indices
only grow, so that the limit `oldest` removes captions.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.engine.tree import DraftTree

START = -1
"""Precedes the first token of a caption."""
RUNS = 12
"""The last 1 to 12 tokens (with START) are contexts: the runs."""
FURTHER = 3
"""Further contexts, which help after a token that differs: the third-last token, the last token with its
number of occurrences in the caption, and the number of tokens."""
KINDS = RUNS + FURTHER
RECENT = 24
"""Number of latest occurrences of a context that count."""
DECAY = 0.8
"""Weight of an occurrence relative to the next one."""
SHORTER_RUN = 3.0
"""Weight of the prediction by the next shorter run, in occurrences (values from 1 to 4 work)."""
MIN_PROB = 5e-4
"""Runs predict probabilities from MIN_PROB to 1 - MIN_PROB."""
PRIOR = 0.3
"""Added to a further context's counts of a token and of all others (values from 0.1 to 1 work)."""
RUN_WEIGHT = 0.7
FURTHER_WEIGHT = 0.25
"""Weights of the log odds of the runs and of each further context."""
_MAX_CANDIDATES = KINDS * RECENT
TOKENS_PER_CAPTION = 64
"""Room for each caption on average; with longer captions the table holds fewer of them."""
_MIN_PLACES = 1024
_SLOTS = 16
"""Hash slots for each token, a power of two. A token needs up to KINDS, and one slot must stay free."""
assert _SLOTS > KINDS

_TABLE = "Tuple((uint64[::1], int32[::1], int32[:, ::1], int32[::1]))"


@compiled("uint64(uint64, int64)")
def _mix(seed, value):  # type: ignore[no-untyped-def]
    """Return a hash of both values, by a step of SplitMix64 (Steele et al., 2014)."""
    mixed = seed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(value + 2)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled("void(int64[::1], int64, uint64[::1])")
def _hash_contexts(text, n, hashes):  # type: ignore[no-untyped-def]
    """Write the hashes of the contexts after the first `n` tokens of `text`; 0 means no context."""
    hashes[:] = 0
    run = np.uint64(1)
    for k in range(min(RUNS, n)):
        run = _mix(run, text[n - 1 - k])
        hashes[k] = run | np.uint64(1)
    if n >= 3:
        hashes[RUNS] = _mix(np.uint64(2), text[n - 3]) | np.uint64(1)
    times = 0
    for i in range(n):
        times += text[i] == text[n - 1]
    hashes[RUNS + 1] = _mix(_mix(np.uint64(3), text[n - 1]), times) | np.uint64(1)
    hashes[RUNS + 2] = _mix(np.uint64(4), n) | np.uint64(1)


@compiled("int64(uint64[::1], uint64)")
def _slot(keys, key):  # type: ignore[no-untyped-def]
    """Return the slot of the key in the open-addressing table, or the free slot for it."""
    i = np.int64(key & np.uint64(len(keys) - 1))
    while keys[i] != 0 and keys[i] != key:
        i = (i + 1) & (len(keys) - 1)
    return i


@compiled(f"void({_TABLE}, int64[::1], int64)")
def _add(table, text, begin):  # type: ignore[no-untyped-def]
    """Enter a caption, START first, at the index `begin` and after it."""
    keys, heads, previous, tokens = table
    hashes = np.empty(KINDS, np.uint64)
    for n in range(1, len(text)):
        place = begin + n - 1
        tokens[place] = text[n]
        _hash_contexts(text, n, hashes)
        for kind in range(KINDS):
            previous[place, kind] = -1
            if hashes[kind] != 0:
                slot = _slot(keys, hashes[kind])
                if keys[slot] != 0:
                    previous[place, kind] = heads[slot]
                keys[slot], heads[slot] = hashes[kind], place


@compiled(f"int64({_TABLE}, int64, int64[::1], int64, int64[::1], float64[:, ::1], float64[::1])")
def _predict(table, oldest, text, n, candidates, counts, probs):  # type: ignore[no-untyped-def]
    """Predict the next token after the first `n` tokens of `text`; return the number m of candidates.

    Fills the first m `candidates`, their decayed `counts` by context (m, KINDS), and their `probs`, each
    against all other tokens. Runs are interpolated from the shortest to the longest with a Dirichlet prior
    (MacKay and Peto 1995). The score adds their log odds and those of the further contexts.
    """
    keys, heads, previous, tokens = table
    hashes, totals, m = np.empty(KINDS, np.uint64), np.zeros(KINDS), 0
    _hash_contexts(text, n, hashes)
    for kind in range(KINDS):
        slot = _slot(keys, hashes[kind])
        if hashes[kind] == 0 or keys[slot] == 0:
            continue
        weight, times, place = 1.0, 0, heads[slot]
        while place >= oldest and times < RECENT:
            j = 0
            while j < m and candidates[j] != tokens[place]:
                j += 1
            if j == m:
                candidates[j], counts[j], m = tokens[place], 0.0, m + 1
            counts[j, kind] += weight
            totals[kind] += weight
            weight, times, place = weight * DECAY, times + 1, previous[place, kind]
    for j in range(m):
        prob = 0.0
        for k in range(RUNS):
            prob = (counts[j, k] + SHORTER_RUN * prob) / (totals[k] + SHORTER_RUN)
        prob = min(max(prob, MIN_PROB), 1 - MIN_PROB)
        score = RUN_WEIGHT * math.log(prob / (1 - prob))
        for k in range(RUNS, KINDS):
            others = totals[k] - counts[j, k] + PRIOR
            score += FURTHER_WEIGHT * math.log((counts[j, k] + PRIOR) / others)
        probs[j] = 1 / (1 + math.exp(-score))
    return m


@compiled(f"Tuple((int64[::1], int64[::1], float64[::1]))({_TABLE}, int64, int64[::1], int64, float64)")
def _grow(table, oldest, text, budget, min_prob):  # type: ignore[no-untyped-def]
    """Return tokens, parents and probabilities of a tree after `text`, see `CaptionTable.grow`."""
    candidates, probs = np.empty(_MAX_CANDIDATES, np.int64), np.empty(_MAX_CANDIDATES)
    counts = np.empty((_MAX_CANDIDATES, KINDS))
    # Heap items: negative path probability, order, token, parent, conditional probability.
    heap = [(-1.0, 0, 0, 0, 0.0)]
    heap.pop()
    tokens, parents, found = np.empty(budget, np.int64), np.empty(budget, np.int64), np.empty(budget)
    depths = np.zeros(budget + 1, np.int64)  # The last one is the root's, for parent -1.
    path_text = np.empty(len(text) + budget, np.int64)
    path_text[: len(text)] = text
    nodes, pushed, parent, path = 0, 0, -1, 1.0
    while nodes < budget:
        n = len(text) + depths[parent]
        ancestor = parent
        for i in range(n - 1, len(text) - 1, -1):
            path_text[i], ancestor = tokens[ancestor], parents[ancestor]
        m = _predict(table, oldest, path_text, n, candidates, counts, probs)
        total = max(1.0, probs[:m].sum())
        for j in range(m):
            prob = probs[j] / total
            if path * prob >= min_prob:
                heapq.heappush(heap, (-path * prob, pushed, candidates[j], parent, prob))
                pushed += 1
        if not heap:
            break
        cost, _, tokens[nodes], parents[nodes], found[nodes] = heapq.heappop(heap)
        depths[nodes] = depths[parents[nodes]] + 1
        path, parent, nodes = -cost, nodes, nodes + 1
    return tokens[:nodes].copy(), parents[:nodes].copy(), found[:nodes].copy()


class CaptionTable:
    """The last `capacity` captions, or fewer if they are long. Removed captions affect no prediction."""

    def __init__(self, capacity: int) -> None:
        self.captions: deque[tuple[int, ...]] = deque(maxlen=capacity)
        self._max_tokens = TOKENS_PER_CAPTION * capacity
        self._end = 0
        self._arrays = _empty(_MIN_PLACES)

    def add(self, caption: tuple[int, ...]) -> None:
        """Add a finished caption, and remove the oldest ones beyond the limits."""
        self.captions.append(caption)
        while self._tokens() > self._max_tokens:
            self.captions.popleft()
        added = [caption]
        if self._end + len(caption) > len(self._arrays[-1]):
            self._arrays = _empty(max(_MIN_PLACES, 1 << (2 * self._tokens() - 1).bit_length()))
            self._end, added = 0, list(self.captions)
        for each in added:
            _add(self._arrays, _text(each), self._end)
            self._end += len(each)

    def grow(self, tokens: tuple[int, ...], budget: int, min_prob: float) -> DraftTree:
        """Return up to `budget` nodes after `tokens` by falling path probability, down to `min_prob`.

        The probabilities of siblings sum to at most 1.
        """
        oldest = self._end - self._tokens()
        found = _grow(self._arrays, oldest, _text(tokens), budget, min_prob)
        return DraftTree(*(tuple(values.tolist()) for values in found))

    def _tokens(self) -> int:
        return sum(map(len, self.captions))


def _text(tokens: tuple[int, ...]) -> np.ndarray:
    """Return (1 + n,) int64: START and the tokens."""
    return np.array((START, *tokens), np.int64)


def _empty(places: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    slots = _SLOTS * places
    return (
        np.zeros(slots, np.uint64),
        np.zeros(slots, np.int32),
        np.zeros((places, KINDS), np.int32),
        np.zeros(places, np.int32),
    )
