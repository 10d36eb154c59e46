"""The name under which a shard keeps what became of a record that was rewritten or recalled.

Such names lie among the ids of the partition; none is one, since it is longer than any id.
"""

from typing import Final

NAME_BYTES: Final = 257
"""One more than the longest id."""


def receipt_name(offset: int) -> bytes:
    """Of the record that its producer wrote at `offset`."""
    return b"%0*d" % (NAME_BYTES, offset)
