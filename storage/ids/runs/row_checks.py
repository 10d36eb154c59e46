"""A checksum in each row: a lookup reads a few rows, and cannot check all of them."""

from typing import Final

import numpy as np
import numpy.typing as npt

from storage.ids.runs.idents import Words
from storage.ids.runs.layout import ROW_BYTES, Rows

_WORDS: Final = ROW_BYTES // 8
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFF_FFFF)
_FACTORS: Final[Words] = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3,
        0x589965CC75374CC3,
        0x1D8E4E27C47D124F,
    ],
    np.uint64,
)
"""Odd, one for each word of a row and one for its hash: a bit that flips changes the checksum."""


def seal(rows: Rows, hashes: Words) -> None:
    """Set `check` of each row, whose hash is given, once all else in it is set."""
    rows["check"] = _checks(rows, hashes)


def are_whole(rows: Rows, hashes: Words) -> bool:
    """Whether each row is as it was sealed, and with this hash."""
    return bool((rows["check"] == _checks(rows, hashes)).all())


def _checks(rows: Rows, hashes: Words) -> npt.NDArray[np.uint32]:
    """The upper halves of sums of products; `check` itself, half of the last word, counts as 0."""
    words = rows.view("<u8").reshape(-1, _WORDS)
    sums: Words = words[:, :-1] @ _FACTORS[: _WORDS - 1]
    sums += (words[:, -1] & _LOW) * _FACTORS[_WORDS - 1] + hashes * _FACTORS[_WORDS]
    return (sums >> _HALF).astype(np.uint32)
