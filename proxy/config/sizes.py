"""Reads the texts in which people write sizes of data."""

import re
from typing import Final

BYTES_PER: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_SIZE = re.compile(r"([0-9]{1,15})(|KiB|MiB|GiB|TiB)", re.ASCII)


def parse_size_bytes(text: str) -> int:
    """A size in bytes: `1048576`, `64KiB`, `256MiB`, `2GiB`, `1TiB`.

    Raises ValueError with a sentence that says what was found and what would be right.
    """
    if size := _SIZE.fullmatch(text):
        return int(size[1]) * BYTES_PER[size[2]]
    raise ValueError(
        f"{text!r} is no size: write bytes (1048576), or a whole number with its unit, without a "
        "space (64KiB 256MiB 2GiB 1TiB)"
    )


def shown_size(size_bytes: int) -> str:
    """For people: `1.5 GiB`, `20 KiB`, `17 bytes`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= BYTES_PER[unit]:
            return f"{size_bytes / BYTES_PER[unit]:.3g} {unit}"
    return f"{size_bytes} bytes"
