"""The names under which a shard keeps what became of a record that was rewritten or recalled.

Such names lie among the ids of the partition; none is one, since they are longer than any id.
"""

from hashlib import sha256
from typing import Final

NAME_BYTES: Final = 257
"""One more than the longest id."""
PROOF_BYTES: Final = 16


def receipt_name(offset: int) -> bytes:
    """Return the name of the record that its producer wrote at `offset`."""
    return b"%0*d" % (NAME_BYTES, offset)


def recall_names(offset: int, proofs: tuple[bytes, ...]) -> list[bytes]:
    """Return the names of a recall of the record at `offset`, one for each proof."""
    return [receipt_name(offset) + proof for proof in proofs]


def proofs_of(key: bytes | None, ident: bytes | None) -> tuple[bytes, ...]:
    """Return digests of a record's ingress key and of its id (docs/exactly-once.md#proofs).

    A recall that has one of them knows the record. An empty key or id proves nothing.
    """
    known = (b"key:", key), (b"id:", ident)
    return tuple(sha256(kind + text).digest()[:PROOF_BYTES] for kind, text in known if text)
