"""A record as it is fetched, the partition of the ingress that it lies in, and its origin there."""

from typing import NamedTuple, Protocol

from proxy.records.body import Headers


class IngressPartition(NamedTuple):
    """One partition of the ingress topic."""

    topic: str
    number: int

    @property
    def prefix(self) -> str:
        """What the origins of its records begin with: the offset follows."""
        return f"{self.topic}/{self.number}/"

    def origin(self, offset: int) -> str:
        """The name of one of its records, as `timer-origin` and the outcomes carry it."""
        return f"{self.topic}/{self.number}/{offset}"


class Message(Protocol):
    """What the proxy's rules ask of a fetched record; confluent_kafka.Message has it all."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def error(self) -> object | None: ...
