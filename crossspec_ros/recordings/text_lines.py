"""Lines of numbers as events: a compiled loop over the bytes of a text file."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_ros.compiled import compiled

_TEXT = "Array(uint8, 1, 'C', readonly=True)"
_MOST = (2**63 - 1) // 10 - 1
"""Up to here a mantissa takes another digit without leaving 64 bits."""
_NO_NUMBER = -(2**63)


@compiled("int64(int64, int64)")
def _scaled(mantissa: int, power: int) -> int:
    """mantissa * 10**power, rounded to the nearest; `_NO_NUMBER` where 64 bits do not hold that."""
    if mantissa == 0:
        return 0
    while power > 0:
        if abs(mantissa) > _MOST:
            return _NO_NUMBER
        mantissa *= 10
        power -= 1
    if power < -18:
        return 0
    if power < 0:
        divisor = 10 ** (-power)
        whole = mantissa // divisor
        return whole + (mantissa - whole * divisor >= divisor - divisor // 2)
    return mantissa


@compiled(f"UniTuple(int64, 3)({_TEXT}, int64)")
def _number(text: np.ndarray, i: int) -> tuple[int, int, int]:
    """Mantissa and power of ten of the number at `i`, and where it ends: at `i` where there is none."""
    start = i
    sign: Any = 1
    mantissa: Any = 0
    power: Any = 0
    digits: Any = 0
    size = text.size
    if i < size and (text[i] == 0x2B or text[i] == 0x2D):
        sign = -1 if text[i] == 0x2D else 1
        i += 1
    is_fraction = False
    while i < size:
        c: Any = np.int64(text[i])
        if c == 0x2E and not is_fraction:
            is_fraction = True
        elif 0x30 <= c <= 0x39:
            digits += 1
            if mantissa <= _MOST:
                mantissa = mantissa * 10 + c - 0x30
                power -= is_fraction
            else:
                power += not is_fraction
        else:
            break
        i += 1
    if digits == 0:
        return 0, 0, start
    if i < size and (text[i] | 0x20) == 0x65:
        i += 1
        falls = i < size and text[i] == 0x2D
        if i < size and (text[i] == 0x2B or text[i] == 0x2D):
            i += 1
        exponent: Any = 0
        digits = 0
        while i < size and 0x30 <= text[i] <= 0x39 and digits < 4:
            exponent = exponent * 10 + text[i] - 0x30
            digits += 1
            i += 1
        if digits == 0:
            return 0, 0, start
        power += -exponent if falls else exponent
    return sign * mantissa, power, i


@compiled(f"UniTuple(int64, 3)({_TEXT}, int64[::1], int64, int64[:, ::1])")
def parse_lines(
    text: np.ndarray, columns: np.ndarray, power: int, events: np.ndarray
) -> tuple[int, int, int]:
    """Fill `events` (lines, 4) with t * 10**`power`, x, y and p, which are in `columns` (4,) of each line.

    Numbers may be separated by blanks, tabs, commas and semicolons; p may be True or False. Returns how many
    events there are, how many lines are none, and how many times are not whole before they are scaled. Blank
    lines and comments (#, %) do not count.
    """
    count = bad = fractions = 0
    i: Any = 0
    size = text.size
    found = np.empty(4, np.int64)
    while i < size:
        column = found_count = 0
        is_comment = text[i] == 0x23 or text[i] == 0x25
        is_fraction = False
        while i < size and text[i] != 0x0A:
            c = text[i]
            if c == 0x20 or c == 0x09 or c == 0x0D or c == 0x2C or c == 0x3B:
                i += 1
                continue
            if is_comment:
                i += 1
                continue
            mantissa: Any
            exponent: Any
            mantissa, exponent, end = _number(text, i)
            lower = c | 0x20
            if lower == 0x74 or lower == 0x66:
                # True and False, of which the first letter is enough.
                mantissa, exponent, end = np.int64(lower == 0x74), np.int64(0), i + 1
                while end < size and 0x61 <= (text[end] | 0x20) <= 0x7A:
                    end += 1
            is_number = end > i
            i = end
            while i < size:
                c = text[i]
                if c == 0x20 or c == 0x09 or c == 0x0D or c == 0x0A or c == 0x2C or c == 0x3B:
                    break
                is_number = False
                i += 1
            for role in range(4):
                if columns[role] == column and is_number:
                    value: Any = _scaled(mantissa, exponent + (power if role == 0 else 0))
                    if role > 0 and _scaled(value, -exponent) != mantissa:
                        value = np.int64(_NO_NUMBER)
                    if role == 0 and exponent < 0:
                        is_fraction = _scaled(_scaled(mantissa, exponent), -exponent) != mantissa
                    if value != _NO_NUMBER:
                        found[role] = value
                        found_count += 1
            column += 1
        i += 1
        if column == 0:
            continue
        x, y, p = found[1], found[2], found[3]
        if found_count == 4 and 0 <= x < 65536 and 0 <= y < 65536 and -1 <= p <= 1:
            events[count, 0] = found[0]
            events[count, 1] = x
            events[count, 2] = y
            events[count, 3] = p > 0
            count += 1
            fractions += is_fraction
        else:
            bad += 1
    return count, bad, fractions
