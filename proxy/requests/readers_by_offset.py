"""Which policy holds from which ingress offset on (docs/exactly-once.md, rule 3)."""

from bisect import bisect_right
from collections.abc import Sequence

from proxy.records.message import Message
from proxy.records.position import LAST_OFFSET
from proxy.requests.parsed import ParsedRecord
from proxy.requests.request_reader import RequestReader


class ReadersByOffset:
    """Readers of an ingress partition's records, each with the first offset of its policy."""

    def __init__(self, readers: Sequence[tuple[int, RequestReader]]) -> None:
        self._readers = list(readers)

    def at(self, offset: int) -> tuple[RequestReader, int]:
        """What reads the record at `offset`, and the first offset that is another's."""
        index = max(bisect_right(self._readers, offset, key=lambda first: first[0]) - 1, 0)
        until = self._readers[index + 1][0] if index + 1 < len(self._readers) else LAST_OFFSET
        return self._readers[index][1], until

    def read(self, message: Message, by_policy_at: int | None = None) -> ParsedRecord:
        """What one record asks for, which is the same whenever it is read; or would ask for, by the
        policy of another offset."""
        offset = message.offset()
        reader, _until = self.at(offset if by_policy_at is None else by_policy_at)
        headers, timestamp_ms = message.headers() or [], message.timestamp()[1]
        key, value, partition = message.key(), message.value(), message.partition()
        return reader.read(headers, key, value, timestamp_ms, partition, offset)
