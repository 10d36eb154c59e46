"""What a list of waiting records is asked for, as text of a query."""

import re
from collections.abc import Mapping
from typing import Final

from proxy.admin.exchange import bad_request
from proxy.protocol.header_values import LONGEST_ID_BYTES
from proxy.protocol.policy import TARGETS_PATTERN
from proxy.protocol.times import parse_instant_ms
from proxy.scheduling.pending import Sought
from storage.store import LAST_OFFSET

MOST_RECORDS: Final = 1_000
LIMIT: Final = re.compile(r"[1-9][0-9]{0,3}")
RECORDS: Final = "100"
CURSOR: Final = re.compile(
    r"1\.([0-8][0-9]{18}|[0-9]{1,18})\.([0-9]{1,10})\.([0-8][0-9]{18}|[0-9]{1,18})"
)
"""Its version, then a place."""
LAST_IN_CURSOR: Final = 9 * 10**18 - 1
"""Stands for the end of a millisecond."""
FILTERS: Final = ("target", "due_from", "due_to", "id_prefix")
BEYOND_PARTITIONS: Final = 2**31

Place = tuple[int, int, int]
"""(fires ms, partition, offset): the order of records in a list."""


def sought_by(query: Mapping[str, str]) -> Sought:
    """The filters among `query`. Raises Problem."""
    asked = Sought()
    if "target" in query:
        asked = asked._replace(pattern=pattern_of(query["target"]))
    if "due_from" in query:
        asked = asked._replace(from_ms=instant_ms("due_from", query["due_from"]))
    if "due_to" in query:
        asked = asked._replace(until_ms=instant_ms("due_to", query["due_to"]))
    prefix = query.get("id_prefix", "").encode("utf-8", "replace")
    if len(prefix) > LONGEST_ID_BYTES:
        raise bad_request(f"An id has at most {LONGEST_ID_BYTES} bytes of UTF-8.")
    return asked._replace(ident_prefix=prefix)


def pattern_of(text: str) -> str:
    """A pattern of targets. Raises Problem."""
    if TARGETS_PATTERN.fullmatch(text) is None:
        raise bad_request(
            "A pattern of targets has 1 to 249 of the characters a-z A-Z 0-9 . _ - * ? [ ] !"
        )
    return text


def limit_of(text: str) -> int:
    """How many records a page may have. Raises Problem."""
    if LIMIT.fullmatch(text) is None or int(text) > MOST_RECORDS:
        raise bad_request(f"`limit` is a number from 1 to {MOST_RECORDS}.")
    return int(text)


def place_of(cursor: str | None, sought: Sought) -> Place:
    """Beyond which place a list goes on, or begins. Raises Problem."""
    if cursor is None:
        return sought.from_ms - 1, BEYOND_PARTITIONS, 0
    found = CURSOR.fullmatch(cursor)
    if found is None:
        raise bad_request(
            "The `cursor` is none that this call has given: use it as it was, or leave it out "
            "to begin anew."
        )
    fires_ms, partition, offset = map(int, found.groups())
    return fires_ms, partition, offset if offset < LAST_IN_CURSOR else LAST_OFFSET


def cursor_of(place: Place) -> str:
    """The place as text."""
    fires_ms, partition, offset = place
    return f"1.{fires_ms}.{partition}.{min(offset, LAST_IN_CURSOR)}"


def instant_ms(name: str, text: str) -> int:
    """A time in the query. Raises Problem."""
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise bad_request(f"`{name}`: {error}.") from None
