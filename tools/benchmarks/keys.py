"""Key of a benchmark record: 16 bytes with its number and due time. The reader needs no other part
of the record, so reading is cheap."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

KEY = np.dtype([("sequence", ">u8"), ("due_ms", ">i8")])
KEY_BYTES = KEY.itemsize

Keys = npt.NDArray[np.void]


def write_keys(first_sequence: int, due_ms: npt.NDArray[np.int64]) -> list[bytes]:
    keys = np.empty(len(due_ms), KEY)
    keys["sequence"] = np.arange(first_sequence, first_sequence + len(due_ms))
    keys["due_ms"] = due_ms
    packed = keys.tobytes()
    return [packed[at : at + KEY_BYTES] for at in range(0, len(packed), KEY_BYTES)]


def read_keys(keys: Sequence[bytes]) -> Keys:
    return np.frombuffer(b"".join(keys), KEY)
