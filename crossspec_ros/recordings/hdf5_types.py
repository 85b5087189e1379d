"""Types of HDF5 files, told before h5py makes types of numpy of them.

Those of nested types take gigabytes. Types are at most one deep here.
"""

from __future__ import annotations

import h5py

_NUMBERS = (h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID, h5py.h5t.TypeBitfieldID)


def is_number(kind: h5py.h5t.TypeID) -> bool:
    """Whether a type is a number, or an enumeration of some."""
    base = kind.get_super() if isinstance(kind, h5py.h5t.TypeEnumID) else kind
    return isinstance(base, _NUMBERS)


def is_row(kind: h5py.h5t.TypeID) -> bool:
    """Whether a type is a number, or has nothing but numbers as its fields."""
    if not isinstance(kind, h5py.h5t.TypeCompoundID):
        return is_number(kind)
    return all(is_number(kind.get_member_type(i)) for i in range(kind.get_nmembers()))


def is_value(kind: h5py.h5t.TypeID) -> bool:
    """Whether a type is a number, an array of them, or a text."""
    base = kind.get_super() if isinstance(kind, h5py.h5t.TypeArrayID) else kind
    return isinstance(base, h5py.h5t.TypeStringID) or is_number(base)
