"""Headers of records as a consumer got them."""

from confluent_kafka import Message

from proxy.records.header_text import read_headers
from proxy.records.headers import UNREADABLE


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers in order; none at all is an empty list.

    Of a record with a header name that is not UTF-8 the client library can show none: one mark
    stands for them.
    """
    try:
        headers = read_headers(message) or []
    except (SystemError, UnicodeDecodeError):
        return [(UNREADABLE, None)]
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, raw.encode() if isinstance(raw, str) else raw) for name, raw in pairs]
