"""Replies of the API: their common form, and the replies that cover the whole group."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Partitions = Annotated[
    list[Count],
    Field(description="Ingress partitions that the answer covers."),
]


class Answer(BaseModel):
    """A reply body. Fields that were not set are left out."""

    model_config = ConfigDict(extra="forbid")
    later: ClassVar[str | None] = None
    """The meaning of status 202. None: the answer never has this status."""

    def status_code(self) -> int:
        return 200


class Unanswered(Answer):
    """An instance that did not answer."""

    instance: str = Field(description="Name or address of the instance.")
    reason: str


class OfGroup(Answer):
    """A reply for all instances of the group."""

    complete: bool = Field(
        True,
        description="True if the answer covers each ingress partition once. False also while a "
        "partition recovers or moves to another instance.",
    )
    unanswered: list[Unanswered] = Field(
        [],
        description="Instances that did not answer. Their partitions may be served by "
        "other instances already.",
    )

    def covered(self) -> list[int] | None:
        """Return the partitions that the answer covers. A partition may be there twice. Return None
        if the answer does not name partitions."""
        return None

    def cover(self, partitions: list[int]) -> None:
        """Set the partitions that the answer covers."""


class WithPartitions(OfGroup):
    """A reply that names the partitions that it covers."""

    partitions: Partitions

    def covered(self) -> list[int] | None:
        return self.partitions

    def cover(self, partitions: list[int]) -> None:
        self.partitions = partitions


class ShardState(Answer):
    """An ingress partition in the instance that serves it."""

    partition: Count
    state: str
    pending: Count
    behind: Count = Field(description="Unread ingress records.")
    undecided: Count = Field(description="Undecided half messages.")


class InstanceState(Answer):
    """An instance that answered."""

    name: str
    address: str | None = Field(
        description="Address at which the instance was asked. Null for the called instance."
    )
    version: str
    ready: bool
    reason: str = Field(description="Why the instance is not ready. Empty if it is ready.")
    disk_full: bool = Field(description="True if the disk is full, so no records are ingested.")
    pending: Count
    overdue: int | None = Field(description="Overdue records. Null while a worker is silent.")
    oldest_overdue_s: float = Field(description="Age of the oldest overdue record in seconds.")
    shards: list[ShardState] = Field(description="Partitions of the instance, at most 200.")


class Instances(WithPartitions):
    """All instances of the group, and their totals."""

    cluster: str | None = Field(description="Id of the Kafka cluster. Null while it is unknown.")
    group: str
    pending: Count
    overdue: int | None = Field(description="Overdue records. Null while a worker is silent.")
    paused: int | None = Field(
        description="Pending records of paused targets. Null while a worker is silent."
    )
    oldest_overdue_s: float = Field(description="Age of the oldest overdue record in seconds.")
    partitions_missing: list[int] | None = Field(
        description="Ingress partitions that no answer covers. Null if the broker is silent."
    )
    instances: list[InstanceState] = Field(min_length=1)
