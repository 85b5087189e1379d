"""Pickles from anybody, looked at before they are loaded: some never end."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

# Of a dtype, a shape or the state of an array: a dozen.
_MOST_PARTS = 1000
_KEPT = (pickletools.pylist, pickletools.pydict, pickletools.pyset)
"""These cannot be keys, and all that is in them is in the pickle itself."""
_LEGACY_PICKLES = 5
_MOST_OPCODES, _MOST_BYTES = 1_000_000, 32 << 20
"""Of a file of torch.save: a tensor takes some 30 opcodes and 200 bytes, and its numbers lie beside it."""
_OF_TENSORS = re.compile(
    r"collections OrderedDict|torch(\.cuda|\.storage)? \w+Storage|torch [a-z]+\d\w*"  # and types of numbers
    r"|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?)"
)
_MOST_STATES = 10
"""A dict of tensors has one, its versions."""


def check_pickle(data: bytes, most_opcodes: int | None = None) -> None:
    """Raise UnpicklingError for tuples that hold each other so often that a hash of one would not end.

    Raises too where there are more than `most_opcodes`, and what pickletools raises for no pickle.
    """
    for _ in _steps(io.BytesIO(data), most_opcodes):
        pass


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


def check_torch_file(file: Path) -> None:
    """The same for a file of torch.save, and for what is more than tensors; raises ValueError where its
    archive is not one as torch writes."""
    if not zipfile.is_zipfile(file):
        with file.open("rb") as stream:
            # They come first; what a number in one says is not read where it is not there.
            pickles = io.BytesIO(stream.read(_MOST_BYTES))
        for _ in range(_LEGACY_PICKLES):
            _check_tensors(pickles)
        return
    with zipfile.ZipFile(file) as archive:
        if any(member.compress_type for member in archive.infolist()):
            raise ValueError("its archive is packed")
        members = [member for member in archive.infolist() if member.filename.endswith("data.pkl")]
        if len(members) != 1 or members[0].file_size > _MOST_BYTES:
            raise ValueError("it has no pickle, several, or a huge one")
        _check_tensors(io.BytesIO(archive.read(members[0])))
