"""Numbers for the names of targets: a bounded number of names, whoever chooses them."""

from collections.abc import Container, Mapping, Sequence
from struct import Struct

import numpy as np

from storage.options import MOST_NAMES, MOST_NUMBERS
from storage.store import Column, Entry

UNNAMED = MOST_NUMBERS
"""In place of a number: the name stands before the body."""
_NAME = Struct("<H")


class _Numbers(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return UNNAMED


class TargetNumbers:
    """At most `most` names of a shard have a number. Entries of a name with a number are counted
    by name, all others in one sum.

    A name has its number from the first of its pending entries to the last, or it has none for as
    long as any pends: so each count by name is exact. For this the first name that finds no room
    closes the table, and it opens again once no entry without a name's number pends.
    """

    def __init__(
        self,
        names: Mapping[int, str] | None = None,
        most: int = MOST_NAMES,
        *,
        is_closed: bool = False,
    ) -> None:
        self.by_number: dict[int, str] = dict(names or {})
        self.by_name = _Numbers((name, number) for number, name in self.by_number.items())
        self._most = most
        self._next = 1 + max(self.by_number, default=-1)
        self._free = [at for at in range(self._next) if at not in self.by_number]
        self._is_closed = is_closed
        self._new_names = 0

    def has(self, name: str) -> bool:
        """Whether entries of `name` are counted by name; asked before they are counted."""
        return name in self.by_name or self._take(name)

    @property
    def wants_release(self) -> bool:
        """Whether enough new names came since the last `release` to pay for the next one."""
        return self._new_names >= self._most

    def release(self, used: Container[str]) -> None:
        """Take back the numbers of all names that are not among `used`, and open the table.

        Only while no entry without a number pends."""
        unused = [name for name in self.by_name if name not in used]
        for name in unused:
            number = self.by_name.pop(name)
            del self.by_number[number]
            self._free.append(number)
        self._is_closed, self._new_names = False, 0

    def prefix_bytes(self, name: str) -> int:
        """What stands before each body of a name that has no number."""
        return _NAME.size + len(name.encode())

    def columns_of(self, entries: Sequence[Entry]) -> tuple[Column, list[bytes]]:
        """The number of each entry's target, and its body, after the name if it has no number."""
        bodies = [entry[3] for entry in entries]
        found = map(self.by_name.__getitem__, [entry[2] for entry in entries])
        numbers = np.fromiter(found, np.int64, len(entries))
        for at in np.flatnonzero(numbers == UNNAMED).tolist():
            name = entries[at][2].encode()
            bodies[at] = b"".join((_NAME.pack(len(name)), name, bodies[at]))
        return numbers, bodies

    def _take(self, name: str) -> bool:
        self._new_names += 1
        if self._is_closed or len(self.by_name) >= self._most:
            self._is_closed = True
            return False
        if not self._free:
            self._free.append(self._next)
            self._next += 1
        number = self.by_name[name] = self._free.pop()
        self.by_number[number] = name
        return True


def resolved(
    names: Mapping[int, str], numbers: Column, bodies: list[bytes]
) -> tuple[list[str], list[bytes]]:
    """Targets and bodies of what `columns_of` has made, `names` being by number.

    Raises KeyError for a number that no name has."""
    unnamed = np.flatnonzero(numbers == UNNAMED).tolist()
    if not unnamed:
        return [names[number] for number in numbers.tolist()], bodies
    bodies = list(bodies)
    targets = [names[number] if number != UNNAMED else "" for number in numbers.tolist()]
    for at in unnamed:
        targets[at], bodies[at] = _split(bodies[at])
    return targets, bodies


def _split(body: bytes) -> tuple[str, bytes]:
    end = _NAME.size + int(_NAME.unpack_from(body)[0])
    return body[_NAME.size : end].decode(), body[end:]
