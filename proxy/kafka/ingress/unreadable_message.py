"""Records whose headers the client library cannot decode."""

from proxy.records.body import Headers
from proxy.records.header_text import read_headers
from proxy.records.headers import UNREADABLE
from proxy.records.message import Message


class UnreadableMessage:
    """A record with a header name that is not UTF-8; it says so in place of its headers.

    The broker takes any bytes as a name, and clients other than Java's write them. The client
    library fails to decode it once, and the process crashes when the headers are asked for again.
    """

    def __init__(self, message: Message) -> None:
        self.partition, self.offset = message.partition, message.offset
        self.key, self.value, self.timestamp = message.key, message.value, message.timestamp
        self.error = message.error

    def headers(self) -> Headers:
        """One header, of a name that no record may have."""
        return [(UNREADABLE, None)]


def readable(message: Message) -> Message:
    """The message, if its headers can be read. For all that was fetched, before anybody looks."""
    try:
        read_headers(message)
    except SystemError:
        return UnreadableMessage(message)
    return message
