"""Pickles from anybody, looked at before they are loaded: some never end."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from crossspec_ros.files import archive_file

# Of a dtype, a shape or the state of an array: a dozen.
_MOST_PARTS = 1000
_KEPT = (pickletools.pylist, pickletools.pydict, pickletools.pyset)
"""These cannot be keys, and all that is in them is in the pickle itself."""
_LEGACY_PICKLES = 5
_MOST_OPCODES = 1_000_000
"""Opcodes of a file of torch.save: a tensor takes some 30, and its numbers lie beside it."""
_MOST_BYTES = 32 << 20
"""Pickle of a file of torch.save: a tensor takes some 200 bytes."""
_OF_TENSORS = re.compile(
    r"collections OrderedDict|torch(\.cuda|\.storage)? \w+Storage|torch [a-z]+\d\w*"  # and types of numbers
    r"|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?)"
)
_ARCHIVE = b"PK\3\4"
"""First bytes of a file of torch.save, but for legacy ones."""
_END = struct.Struct("<4s36x2Q 4s4xQ4x 4s8x2IH")
"""End of an archive: a record of 64 bits and where that is, which it may lack, and a record of 32 bits."""
_BYTES_OF_32_BIT_END = 22
_MOST_STATES = 10
"""A dict of tensors has one, its versions."""


def _steps(data: io.BytesIO, most_opcodes: int | None) -> Iterator[tuple[str, object, int]]:
    """Each opcode that does not only put into the memo, its argument, and how many values it takes.

    What a tuple counts is found by going through the opcodes as an unpickler does, without its objects.
    """
    stack: list[int] = []
    memo: dict[object, int] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        name, before = opcode.name, opcode.stack_before
        # The unpickler makes a table as long as the largest number in a PUT.
        if most_opcodes and (count > most_opcodes or ("PUT" in name and int(argument or 0) > most_opcodes)):
            raise pickle.UnpicklingError("it has too many parts")
        if "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1] if stack else 1
            continue
        taken = []
        if pickletools.markobject in before:
            while stack and (top := stack.pop()):
                taken.append(top)
            before = before[: before.index(pickletools.markobject)]
        taken += [stack.pop() if stack else 1 for _ in before]
        size = 1 + sum(taken)
        if "GET" in name:
            size = memo.get(argument, 1)
        elif name == "DUP":
            size = taken[0]
        elif name == "MARK":
            size = 0
        elif opcode.stack_after and opcode.stack_after[0] in _KEPT:
            size = 1
        if size > _MOST_PARTS:
            raise pickle.UnpicklingError("it has tuples of too many parts")
        stack += [size] * len(opcode.stack_after)
        yield name, argument, len(taken)


def _check_tensors(data: io.BytesIO) -> None:
    """Raise UnpicklingError for what torch.save does not write of tensors and plain containers.

    torch takes more: what allocates by a number, and what copies one large value again and again.
    """
    before, count, states = "", 0, 0
    for name, argument, taken in _steps(data, _MOST_OPCODES):
        states += name == "BUILD"
        if name == "GLOBAL" and not _OF_TENSORS.fullmatch(str(argument)):
            raise pickle.UnpicklingError(f"GLOBAL {str(argument).replace(' ', '.')}")
        # An OrderedDict is made of nothing, and a tensor of three values or more.
        is_made = before == "EMPTY_TUPLE" or (before.startswith("TUPLE") and count > 2)
        if name == "NEWOBJ" or states > _MOST_STATES or (name == "REDUCE" and not is_made):
            raise pickle.UnpicklingError("it makes what is no tensor")
        before, count = name, taken


def _check_end(file: Path) -> None:
    """Raise ValueError where torch may find another list of members than zipfile: it goes by the places that
    the end of an archive states, and zipfile by what stands before them."""
    with file.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - _END.size))
        parts = _END.unpack(stream.read().rjust(_END.size, b"\0"))
    record, *wide, locator, stated, end, length, place, comment = parts
    behind, is_same = size - _BYTES_OF_32_BIT_END, end == b"PK\5\6" and not comment
    if locator == b"PK\6\7":
        behind, length, place = size - _END.size, *wide
        is_same &= record == b"PK\6\6" and stated == behind
    if not is_same or place + length != behind:
        raise ValueError("its archive does not end as torch writes it")


def check_torch_file(file: Path) -> None:
    """The same for a file of torch.save, and for what is more than tensors; raises ValueError or OSError
    where its archive is not one as torch writes."""
    with file.open("rb") as stream:
        # As torch tells it; zipfile goes by the end.
        if stream.read(len(_ARCHIVE)) != _ARCHIVE:
            stream.seek(0)
            # Pickles come first; what a number in one says is not read where it is not there.
            pickles = io.BytesIO(stream.read(_MOST_BYTES))
            for _ in range(_LEGACY_PICKLES):
                _check_tensors(pickles)
            return
    _check_end(file)
    with zipfile.ZipFile(archive_file(file)) as archive:
        if any(member.compress_type for member in archive.infolist()):
            raise ValueError("its archive is packed")
        members = [member for member in archive.infolist() if member.filename.endswith("data.pkl")]
        if len(members) != 1 or members[0].file_size > _MOST_BYTES:
            raise ValueError("it has no pickle, several, or a huge one")
        _check_tensors(io.BytesIO(archive.read(members[0])))
