"""Lines of numbers, parsed by compiled code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crossspec_ros.compiled import compiled

_TEXT_BYTES = "Array(uint8, 1, 'C', readonly=True)"
_MOST_MANTISSA = (2**63 - 1) // 10 - 1
"""Up to here a mantissa takes another digit without leaving 64 bits."""
_NO_NUMBER = -(2**63)


@compiled("int64(int64, int64)")
def _scaled(mantissa: int, power: int) -> int:
    """mantissa * 10**power, rounded to the nearest; `_NO_NUMBER` where 64 bits do not hold that."""
    if mantissa == 0:
        return 0
    while power > 0:
        if abs(mantissa) > _MOST_MANTISSA:
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


@compiled(f"UniTuple(int64, 3)({_TEXT_BYTES}, int64)")
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
            if mantissa <= _MOST_MANTISSA:
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


@compiled(f"int64({_TEXT_BYTES}, int64, int64, int64[::1], float64[:, ::1])")
def parse_lines(text: np.ndarray, exact: int, power: int, times: np.ndarray, rows: np.ndarray) -> int:
    """Fill `rows` (lines, k) with the first numbers of each line, and `times` (lines,) with the `exact`-th
    one * 10**`power`, rounded, where that is not negative. Returns how many lines there are.

    Numbers may be separated by blanks, tabs, commas and semicolons; True and On are 1, False and Off 0. What
    is no number or not there, such as nothing between two commas, is NaN, and in `times` below all numbers.
    Blank lines and comments (#, %) do not count. Lines end by LF, CR or both.
    """
    count: Any = 0
    i: Any = 0
    size = text.size
    while i < size:
        column: Any = 0
        # Empty cells count once a value stands behind them.
        cells: Any = 0
        is_empty = True
        is_comment = text[i] == 0x23 or text[i] == 0x25
        while i < size and text[i] != 0x0A and text[i] != 0x0D:
            c = text[i]
            if is_comment or c == 0x20 or c == 0x09 or c == 0x2C or c == 0x3B:
                is_separator = not is_comment and (c == 0x2C or c == 0x3B)
                cells += is_separator and is_empty
                is_empty = is_empty or is_separator
                i += 1
                continue
            while cells:
                if column < rows.shape[1]:
                    rows[count, column] = math.nan
                if column == exact:
                    times[count] = _NO_NUMBER
                column += 1
                cells -= 1
            is_empty = False
            mantissa: Any
            exponent: Any
            mantissa, exponent, end = _number(text, i)
            lower = c | 0x20
            if lower == 0x74 or lower == 0x66 or lower == 0x6F:
                # The first letters of true, false, on and off are enough.
                second = text[i + 1] | 0x20 if i + 1 < size else 0
                is_on = lower == 0x74 or (lower == 0x6F and second == 0x6E)
                mantissa, exponent, end = np.int64(is_on), np.int64(0), i + 1
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
            if column < rows.shape[1]:
                value = math.nan
                if is_number and exponent >= 0:
                    value = mantissa * 10.0**exponent
                elif is_number:
                    # Such a quotient is exact where it is whole.
                    value = mantissa / 10.0**-exponent if exponent > -300 else 0.0
                rows[count, column] = value if math.isfinite(value) else math.nan
            if column == exact:
                times[count] = _scaled(mantissa, exponent + power) if is_number else _NO_NUMBER
            column += 1
        i += 1
        if column:
            rows[count, column:] = math.nan
            if column <= exact:
                times[count] = _NO_NUMBER
            count += 1
    return count
