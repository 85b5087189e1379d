"""Small valid packets of every encoding, and the ways in which they are damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from crossspec_ros.bench.event_streams import encode_libcaer, encode_mono
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.events.evt3 import EXT_TRIGGER
from crossspec_ros.events.evt3_encoder import encode_evt3
from crossspec_ros.events.libcaer_cmp_encoder import encode_libcaer_cmp

SIZE = (64, 48)
"""Width and height of the sensor that all packets come from."""
EPOCH_US = 1_700_000_000_000_000
PACKET_US = 10_000
_DRAWN = 1 << 14
_SIXTY_FOUR_BITS = np.dtype([("dt", "<u4"), ("low", "<u2"), ("high", "<u2")])
# Where a dvs_msgs array has its height, width and number of events.
_DVS_SIZES = 32


class Dice:
    """Cheap random numbers: drawn from a seeded generator by the thousand, handed out one by one."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._numbers: list[int] = []
        self._bytes = b""

    def below(self, limit: int) -> int:
        """A number in 0 .. limit - 1; `limit` below 2**63."""
        if not self._numbers:
            self._numbers = self.rng.integers(0, 1 << 63, _DRAWN).tolist()
            self._bytes = self.rng.bytes(1 << 12)
        return self._numbers.pop() % limit

    def bytes(self, most: int) -> bytes:
        """0 to `most` random bytes."""
        start = self.below(1 << 11)
        return self._bytes[start : start + self.below(most + 1)]


def _batch(rng: np.random.Generator, start_us: int, along: str) -> EventBatch:
    """Tens of events: lone ones, and runs of neighbours `along` x or y, which vector words are made for."""
    width, height = SIZE
    runs = int(rng.integers(1, 5))
    lengths = rng.integers(1, 14, runs)
    each = [np.repeat(rng.integers(0, limit, runs), lengths) for limit in (width, height, 2)]
    place = np.concatenate([np.arange(length) for length in lengths])
    x, y, p = each
    x, y = (np.minimum(x + place, width - 1), y) if along == "x" else (x, np.minimum(y + place, height - 1))
    t = start_us + np.repeat(np.sort(rng.integers(0, PACKET_US, runs)), lengths)
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), width, height)


def _evt3(rng: np.random.Generator, start_us: int) -> bytes:
    trigger = EXT_TRIGGER << 12 | int(rng.integers(0, 16)) << 8 | int(rng.integers(0, 2))
    return encode_evt3(_batch(rng, start_us, "x")) + struct.pack("<H", trigger)


def _libcaer_cmp(rng: np.random.Generator, start_us: int) -> bytes:
    return encode_libcaer_cmp(_batch(rng, start_us, "y"), start_us * 1000)


def _mono(rng: np.random.Generator, start_us: int) -> bytes:
    return encode_mono(_batch(rng, start_us, "x"), start_us * 1000)


def _libcaer(rng: np.random.Generator, start_us: int) -> bytes:
    return encode_libcaer(_batch(rng, start_us, "y"), start_us * 1000)


def _trigger(rng: np.random.Generator, start_us: int) -> bytes:
    words = np.zeros(int(rng.integers(1, 20)), _SIXTY_FOUR_BITS)
    words["dt"] = np.sort(rng.integers(0, PACKET_US * 1000, len(words)))
    words["high"] = rng.integers(0, 1 << 16, len(words))
    return words.tobytes()


def _dvs(rng: np.random.Generator, start_us: int) -> bytes:
    return encode_dvs(_batch(rng, start_us, "x"), start_us * 1000)


_MAKERS: dict[str, Callable[[np.random.Generator, int], bytes]] = {
    "evt3": _evt3,
    "libcaer": _libcaer,
    "libcaer_cmp": _libcaer_cmp,
    "mono": _mono,
    "trigger": _trigger,
    "dvs": _dvs,
}
ENCODINGS = tuple(_MAKERS)
# The bits of a 16-bit word that make a coordinate; the word must not become one of another type.
_COORDINATE = dict.fromkeys(ENCODINGS, 0x7FFF) | dict.fromkeys(("evt3", "libcaer_cmp"), 0x7FF)
# An event takes so many bytes at least, when a vector word holds 12 or 8 of them.
LEAST_BYTES = {"evt3": 2 / 12, "libcaer_cmp": 2 / 8, "mono": 8, "libcaer": 8, "trigger": 8, "dvs": 13}


def packet_start_us(number: int) -> int:
    """When the `number`-th valid packet of a stream starts."""
    return EPOCH_US + number * PACKET_US


def valid_packets(encoding: str, count: int, seed: int) -> list[bytes]:
    """A stream of valid payloads, one every 10 ms, each with tens of events; of dvs, whole messages."""
    rng = np.random.default_rng(seed)
    return [_MAKERS[encoding](rng, packet_start_us(number)) for number in range(count)]


def _intact(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    return data


def _flip_bits(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    flipped = bytearray(data)
    for _ in range(1 + dice.below(6)):
        bit = dice.below(8 * len(flipped))
        flipped[bit >> 3] ^= 1 << (bit & 7)
    return bytes(flipped)


def _truncate(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    return data[: dice.below(len(data))]


def _splice(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    return data[: dice.below(len(data) + 1)] + other[dice.below(len(other)) :]


def _random_bytes(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    return dice.bytes(256)


def _huge_coordinates(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    words = np.frombuffer(data, "<u2", len(data) // 2).copy()
    for _ in range(1 + dice.below(4)):
        words[dice.below(len(words))] |= _COORDINATE[encoding]
    return words.tobytes() + data[words.nbytes :]


def _zero_sizes(data: bytes, other: bytes, encoding: str, dice: Dice) -> bytes:
    """No bytes at all, or a size or count of zero, wherever the encoding has one."""
    if not dice.below(8):
        return b""
    start = _DVS_SIZES + 4 * dice.below(3) if encoding == "dvs" else dice.below(len(data))
    return data[:start] + bytes(4) + data[start + 4 :]


MUTATIONS: dict[str, Callable[[bytes, bytes, str, Dice], bytes]] = {
    "intact": _intact,
    "bit_flips": _flip_bits,
    "truncation": _truncate,
    "splice": _splice,
    "random_bytes": _random_bytes,
    "huge_coordinates": _huge_coordinates,
    "zero_sizes": _zero_sizes,
}
"""Each makes a payload from a valid one and another one of the same encoding."""
