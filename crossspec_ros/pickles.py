"""Pickles from anybody, looked at before they are loaded: some never end."""

from __future__ import annotations

import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import IO

# Of a dtype, a shape or the state of an array: a dozen.
_MOST_PARTS = 1000
_KEPT = (pickletools.pylist, pickletools.pydict, pickletools.pyset)
"""These cannot be keys, and all that is in them is in the pickle itself."""
_LEGACY_PICKLES = 5
_MOST_OPCODES, _MOST_BYTES = 1_000_000, 32 << 20
"""Of a file of torch.save: a tensor takes some 30 opcodes and 200 bytes, and its numbers lie beside it."""


def check_pickle(data: bytes | IO[bytes], most_opcodes: int | None = None) -> None:
    """Raise UnpicklingError for tuples that hold each other so often that a hash of one would not end.

    What a tuple counts is found by going through the opcodes as an unpickler does, without its objects.
    Raises too where there are more than `most_opcodes`, and what pickletools raises for no pickle.
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


def check_torch_file(file: Path) -> None:
    """The same for a file of torch.save; raises ValueError where its archive is not one as torch writes."""
    if not zipfile.is_zipfile(file):
        with file.open("rb") as stream:
            for _ in range(_LEGACY_PICKLES):
                check_pickle(stream, _MOST_OPCODES)
        return
    with zipfile.ZipFile(file) as archive:
        if any(member.compress_type for member in archive.infolist()):
            raise ValueError("its archive is packed")
        pickles = [member for member in archive.infolist() if member.filename.endswith("data.pkl")]
        if len(pickles) != 1 or pickles[0].file_size > _MOST_BYTES:
            raise ValueError("it has no pickle, several, or a huge one")
        check_pickle(archive.read(pickles[0]), _MOST_OPCODES)
