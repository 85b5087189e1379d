"""Context mixing over earlier captions: what followed in several contexts, weighed by what was right.

Compiled, because a tree of 128 nodes asks for a hundred distributions, and all in one file, because numba
does not see that a function changed which another file calls. `proposers/memory.py` keeps the weights.

A caption is an array of tokens behind START. What is known is a table: a hash of each context leads to the
latest place where it occurred, and from each place to the one before. Places only grow, so that captions are
forgotten by a limit, `oldest`: nothing before it is seen.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

import numpy as np

from crossspec_ros.compiled import compiled

START = -1
"""Stands before the first token of a response."""
ORDERS = 8
"""The longest run of tokens that is looked up; START counts."""
FURTHER = 5
"""Contexts beside the runs: the token two, three and four before, the last one with how often the caption has
it by now, and the number of tokens."""
KINDS = ORDERS + FURTHER
BIASES = 2 * ORDERS + 2
"""Biases of a text that hints: at 2 * the length of the run it shares, + 1 if the token follows in it."""
LOWER_ORDERS = 3.0
"""Occurrences that what the next shorter run predicts is worth (1 to 4 do)."""
ENOUGH = 0.05
"""Shorter runs are not asked for less probability mass than this."""
FLOOR = 5e-4
"""The least probability by runs, and of their being wrong."""
PRIOR = 0.3
"""Added to what a further context has seen of a token and of others (0.05 to 1 do)."""
LIMIT = 9.0
"""Scores beyond it count as that, lest the exponential overflow."""
_MOST_CANDIDATES = 512
_FEWEST = 1024
"""Places of the smallest table; a power of two, as the number of slots must be."""
USUAL_TOKENS = 64
"""Tokens of a caption for which there is room; where captions are longer, fewer are kept."""
_SLOTS = 16
"""For each place; a power of two. Each takes up to KINDS, and there must be a free one."""
assert _SLOTS > KINDS

_TABLE = "Tuple((uint64[::1], int32[::1], int32[:, ::1], int32[::1]))"
_MIXER = "Tuple((float64[:, ::1], float64[::1], float64[::1]))"
_HINTS = "Tuple((int64[::1], int64, int64[::1]))"
_SEEN = "Tuple((int64, float64, int64))"
_SCRATCH = (
    "Tuple((uint64[::1], int64[::1], float64[:, ::1], int64[:, ::1], float64[::1], float64[:, ::1], "
    "float64[::1]))"
)


@compiled("uint64(uint64, int64)")
def _mixed(seed, value):  # type: ignore[no-untyped-def]
    """A step of SplitMix64 (Steele et al., 2014)."""
    mixed = seed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(value + 2)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled("void(int64[::1], int64, uint64[::1])")
def _contexts(said, n, out):  # type: ignore[no-untyped-def]
    """Hashes of the contexts behind the first `n` of `said`, START first; 0 where there is none."""
    out[:] = 0
    run = np.uint64(1)
    for k in range(min(ORDERS, n)):
        run = _mixed(run, said[n - 1 - k])
        out[k] = _mixed(run, k) | np.uint64(1)
    for back in range(2, 5):
        if n >= back:
            out[ORDERS + back - 2] = _mixed(_mixed(np.uint64(2), back), said[n - back]) | np.uint64(1)
    times = 0
    for i in range(n):
        times += said[i] == said[n - 1]
    out[ORDERS + 3] = _mixed(_mixed(np.uint64(3), said[n - 1]), times) | np.uint64(1)
    out[ORDERS + 4] = _mixed(np.uint64(4), n) | np.uint64(1)


@compiled("int64(uint64[::1], uint64)")
def _slot(keys, key):  # type: ignore[no-untyped-def]
    """Slot of a key in the open table, or the one that it would take; there is always a free one."""
    i = np.int64(key & np.uint64(len(keys) - 1))
    while keys[i] != 0 and keys[i] != key:
        i = (i + 1) & (len(keys) - 1)
    return i


@compiled(f"void({_TABLE}, int64[::1], int64)")
def add(table, said, begin):  # type: ignore[no-untyped-def]
    """Enter a caption, START first, at the places from `begin` on, behind all that are taken."""
    keys, heads, previous, tokens = table
    contexts = np.empty(KINDS, np.uint64)
    for n in range(1, len(said)):
        place = begin + n - 1
        tokens[place] = said[n]
        _contexts(said, n, contexts)
        for kind in range(KINDS):
            previous[place, kind] = -1
            if contexts[kind] != 0:
                slot = _slot(keys, contexts[kind])
                if keys[slot] != 0:
                    previous[place, kind] = heads[slot]
                keys[slot], heads[slot] = contexts[kind], place


@compiled("UniTuple(int64, 2)(int64[::1], int64[::1], int64)")
def _match(text, said, n):  # type: ignore[no-untyped-def]
    """The length of the longest run at the end of `said` that `text` has, and what follows its last one."""
    best, token = 0, START
    for i in range(len(text) - 1, 0, -1):
        length = 0
        while length < min(ORDERS, n, i) and text[i - 1 - length] == said[n - 1 - length]:
            length += 1
        if length > best:
            best, token = length, text[i]
            if best == ORDERS:
                break
    return best, token


@compiled("int64(int64[::1], float64[::1], float64[:, ::1], int64, int64)")
def _candidate(candidates, by_runs, counts, known, token):  # type: ignore[no-untyped-def]
    """Index of the token among the candidates, as a new one if need be; -1 where there are too many."""
    for j in range(known):
        if candidates[j] == token:
            return j
    if known == len(candidates):
        return -1
    candidates[known], by_runs[known], counts[known] = token, 0.0, 0.0
    return known


@compiled(f"UniTuple(int64, 2)({_TABLE}, {_SEEN}, int64, {_MIXER}, {_HINTS}, int64[::1], int64, {_SCRATCH})")
def _predict(table, seen, kinds, mixer, hints, said, n, scratch):  # type: ignore[no-untyped-def]
    """Predict what follows the first `n` of `said`: the number of candidates, and the longest run known.

    Fills of `scratch` the candidates, their inputs (m, 1 + FURTHER), biases (m, 2) and probabilities, each
    that of the token being right or not.
    """
    keys, heads, previous, tokens = table
    recent, decay, oldest = seen
    weights, hint_biases, last_biases = mixer
    hint, hint_at, last = hints
    contexts, candidates, inputs, biases, probs, counts, by_runs = scratch
    _contexts(said, n, contexts)
    known, order, left = 0, 0, 1.0
    for kind in range(ORDERS - 1, -1, -1):
        slot = _slot(keys, contexts[kind])
        if contexts[kind] == 0 or keys[slot] == 0 or heads[slot] < oldest:
            continue
        order = max(order, kind + 1)
        total, worth, times, place = LOWER_ORDERS, 1.0, 0, heads[slot]
        while place >= oldest and times < recent:
            total, worth, times, place = total + worth, worth * decay, times + 1, previous[place, kind]
        worth, place = 1.0, heads[slot]
        for _ in range(times):
            j = _candidate(candidates, by_runs, counts, known, np.int64(tokens[place]))
            known = max(known, j + 1)
            if j >= 0:
                by_runs[j] += left * worth / total
            worth, place = worth * decay, previous[place, kind]
        left *= LOWER_ORDERS / total
        if left < ENOUGH:
            break
    totals = np.zeros(FURTHER)
    for kind in range(ORDERS, kinds):
        slot = _slot(keys, contexts[kind])
        if contexts[kind] == 0 or keys[slot] == 0:
            continue
        worth, times, place = 1.0, 0, heads[slot]
        while place >= oldest and times < recent:
            j = _candidate(candidates, by_runs, counts, known, np.int64(tokens[place]))
            known = max(known, j + 1)
            if j >= 0:
                counts[j, kind - ORDERS] += worth
            totals[kind - ORDERS] += worth
            worth, times, place = worth * decay, times + 1, previous[place, kind]
    hinted, hint_token = _match(hint, said, n)
    repeated, last_token = _match(last, said, n)
    for token in (hint_token, last_token):
        if token != START:
            known = max(known, _candidate(candidates, by_runs, counts, known, token) + 1)
    absent = np.zeros(FURTHER)  # what most candidates are
    for i in range(FURTHER):
        absent[i] = math.log(PRIOR / (totals[i] + PRIOR))
    for j in range(known):
        prob = min(max(by_runs[j], FLOOR), 1 - FLOOR)
        inputs[j, 0] = math.log(prob / (1 - prob))
        score = weights[order, 0] * inputs[j, 0]
        for i in range(FURTHER):
            inputs[j, 1 + i] = absent[i]
            if counts[j, i] > 0:
                inputs[j, 1 + i] = math.log((counts[j, i] + PRIOR) / (totals[i] - counts[j, i] + PRIOR))
            score += weights[order, 1 + i] * inputs[j, 1 + i]
        biases[j, 0] = hint_at + 2 * hinted + (candidates[j] == hint_token)
        biases[j, 1] = 2 * repeated + (candidates[j] == last_token)
        score += hint_biases[biases[j, 0]] + last_biases[biases[j, 1]]
        probs[j] = 1 / (1 + math.exp(-min(max(score, -LIMIT), LIMIT)))
    return known, order


@compiled(f"{_SCRATCH}()")
def _scratch():  # type: ignore[no-untyped-def]
    most = _MOST_CANDIDATES
    return (
        np.empty(KINDS, np.uint64),
        np.empty(most, np.int64),
        np.empty((most, 1 + FURTHER)),
        np.empty((most, 2), np.int64),
        np.empty(most),
        np.empty((most, FURTHER)),
        np.empty(most),
    )


@compiled(f"void({_TABLE}, {_SEEN}, int64, {_MIXER}, {_HINTS}, int64[::1], int64, UniTuple(float64, 2))")
def train(table, seen, kinds, mixer, hints, said, begin, rates):  # type: ignore[no-untyped-def]
    """Online logistic regression (Mahoney, PAQ) on the tokens of `said` from `begin` on, at these rates for
    weights and biases."""
    weights, hint_biases, last_biases = mixer
    scratch = _scratch()
    _, candidates, inputs, biases, probs, _, _ = scratch
    for n in range(begin, len(said)):
        known, order = _predict(table, seen, kinds, mixer, hints, said, n, scratch)
        for j in range(known):
            error = (1.0 if candidates[j] == said[n] else 0.0) - probs[j]
            weights[order] += rates[0] * error * inputs[j]
            hint_biases[biases[j, 0]] += rates[1] * error
            last_biases[biases[j, 1]] += rates[1] * error


@compiled(
    f"Tuple((int64[::1], int64[::1], float64[::1]))"
    f"({_TABLE}, {_SEEN}, int64, {_MIXER}, {_HINTS}, int64[::1], int64, float64)"
)
def grow(table, seen, kinds, mixer, hints, said, budget, worth):  # type: ignore[no-untyped-def]
    """The likeliest `budget` paths behind `said`, best first, down to probability `worth`.

    Returns tokens, parents (-1: none) and probabilities (nodes,) given the parent; those of siblings sum to
    at most 1.
    """
    scratch = _scratch()
    _, candidates, _, _, probs, _, _ = scratch
    # Paths by falling probability, of equals the first; with token, parent and the probability given that.
    heap = [(-1.0, 0, 0, 0, 0.0)]
    heap.pop()
    tokens, parents, found = np.empty(budget, np.int64), np.empty(budget, np.int64), np.empty(budget)
    depths = np.zeros(budget + 1, np.int64)  # the last is that of no parent
    text = np.empty(len(said) + budget, np.int64)
    text[: len(said)] = said
    nodes, pushed, parent, path = 0, 0, -1, 1.0
    while nodes < budget:
        n = len(said) + depths[parent]
        ancestor = parent
        for i in range(n - 1, len(said) - 1, -1):
            text[i], ancestor = tokens[ancestor], parents[ancestor]
        known, _ = _predict(table, seen, kinds, mixer, hints, text, n, scratch)
        total = max(1.0, probs[:known].sum())
        for j in range(known):
            prob = probs[j] / total
            if path * prob >= worth:
                heapq.heappush(heap, (-path * prob, pushed, candidates[j], parent, prob))
                pushed += 1
        if not heap:
            break
        cost, _, tokens[nodes], parents[nodes], found[nodes] = heapq.heappop(heap)
        depths[nodes] = depths[parents[nodes]] + 1
        path, parent, nodes = -cost, nodes, nodes + 1
    return tokens[:nodes].copy(), parents[:nodes].copy(), found[:nodes].copy()


class CaptionTable:
    """The last `capacity` captions, or fewer if they are long; what it forgets leaves no trace in what it
    finds.

    `arrays` are the table, in which nothing before the place `oldest` counts. Where the places are used
    up, the captions that are left are entered anew: once in as many tokens as they have.
    """

    def __init__(self, capacity: int) -> None:
        self.captions: deque[tuple[int, ...]] = deque(maxlen=capacity)
        self._most_tokens = USUAL_TOKENS * capacity
        # Where each caption begins.
        self._begins: deque[int] = deque(maxlen=capacity)
        self._end = 0
        self.arrays = _empty(_FEWEST)

    @property
    def oldest(self) -> int:
        """The first place that counts."""
        return self._begins[0] if self._begins else 0

    def add(self, caption: tuple[int, ...]) -> None:
        """Enter a finished caption, and forget the oldest if they become too many."""
        while self.captions and sum(map(len, self.captions)) + len(caption) > self._most_tokens:
            self.captions.popleft()
            self._begins.popleft()
        self.captions.append(caption)
        if self._end + len(caption) <= len(self.arrays[-1]):
            self._enter(caption)
            return
        needed = 2 * sum(map(len, self.captions))
        self.arrays = _empty(max(_FEWEST, 1 << (needed - 1).bit_length()))
        self._begins.clear()
        self._end = 0
        for left in self.captions:
            self._enter(left)

    def _enter(self, caption: tuple[int, ...]) -> None:
        add(self.arrays, behind_start(caption), self._end)
        self._begins.append(self._end)
        self._end += len(caption)


def behind_start(tokens: tuple[int, ...]) -> np.ndarray:
    """(1 + n,) int64: START and the tokens."""
    return np.array((START, *tokens), np.int64)


def _empty(places: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    slots = _SLOTS * places
    return (
        np.zeros(slots, np.uint64),
        np.zeros(slots, np.int32),
        np.zeros((places, KINDS), np.int32),
        np.zeros(places, np.int32),
    )
