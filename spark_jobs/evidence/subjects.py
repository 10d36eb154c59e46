"""Of what each record speaks: an id, or a record by its origin (docs/guide.md#recall).

Records that may end one another have the same *subject*: their id or, without one, the offset of
the first record of their hops.
"""

from typing import Final

SUBJECT: Final = "struct<ident:binary,first:bigint>"
"""ident: an id. first: without one, the offset of the record that all hops have come from."""


def first_written(request: str = "") -> str:
    """SQL of where a record was first written, by what the proxy says of its hops. `request`: what
    stands before the names of its columns."""
    return f"coalesce({request}first_offset, {request}hop_from, offset)"


def own_subject(request: str = "") -> str:
    """SQL of the subject by the record alone; of a recall, by the origin that it names."""
    found = f"""
      CASE WHEN {request}ident IS NOT NULL THEN named_struct('ident', {request}ident, 'first', NULL)
        WHEN {request}kind = 'record'
          THEN named_struct('ident', NULL, 'first', {first_written(request)})
        WHEN {request}kind = 'recall' AND {request}recalled IS NOT NULL
          THEN named_struct('ident', NULL, 'first', {request}recalled) END
    """
    return f"CAST({found} AS {SUBJECT})"


def subject_hash(subject: str) -> str:
    """SQL of a hash of partition and subject; null without one."""
    return (
        f"CASE WHEN {subject}.ident IS NOT NULL THEN xxhash64(partition, {subject}.ident)"
        f" WHEN {subject}.first IS NOT NULL THEN xxhash64(partition, {subject}.first) END"
    )
