"""Finds partitions that the group has left without an owner, and makes it assign them.

A static member that restarts between the two rounds of an incremental rebalance is given what it
had in the first round, and the second round never comes (Kafka answers a returning static member
of a stable group without a rebalance). What it was about to give up then belongs to nobody, for as
long as no member comes or goes. So one member looks, and has another one join and leave.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConsumerGroupDescription,
)

LOOK_EVERY_S: Final = 3.0
LOOKS_IN_A_ROW: Final = 2
"""So many find the same before anything is done: a rebalance may have just begun."""
STAY_S: Final = 15.0

log = structlog.get_logger(__name__)


class UnassignedPartitions:
    """Looks at the group now and then, without waiting for the answer.

    `instance` is this member's own id: of all members the one with the lowest acts. `rebalance`
    makes the group rebalance; it is called at most once per finding. `new_admin` is called once
    more when the group's coordinator is another broker: a client goes on asking the one it knows.
    """

    def __init__(
        self,
        new_admin: Callable[[], AdminClient],
        group_id: str,
        partitions: set[tuple[str, int]],
        instance: str,
        rebalance: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._new_admin, self._group_id = new_admin, group_id
        self._admin = new_admin()
        self._partitions, self._instance, self._rebalance = partitions, instance, rebalance
        self._now_s = now_s
        self._next_look_s = now_s() + LOOK_EVERY_S
        self._answer: Future[ConsumerGroupDescription] | None = None
        self._found: set[tuple[str, int]] = set()
        self._looks = 0

    def look(self) -> None:
        """Called often; asks the broker every LOOK_EVERY_S and takes the answer that has come."""
        if self._answer is not None:
            if self._answer.done():
                self._take(self._answer)
                self._answer = None
        elif self._now_s() >= self._next_look_s:
            self._next_look_s = self._now_s() + LOOK_EVERY_S
            groups = self._admin.describe_consumer_groups([self._group_id])
            self._answer = groups[self._group_id]

    def _take(self, answer: Future[ConsumerGroupDescription]) -> None:
        try:
            group = answer.result()
        except KafkaException as error:
            log.debug("group not described", error=str(error))
            if error.args[0].code() == KafkaError.NOT_COORDINATOR:
                self._admin = self._new_admin()
            return
        unassigned = self._unassigned(group)
        is_same = bool(unassigned) and unassigned == self._found
        self._looks = self._looks + 1 if is_same else bool(unassigned)
        self._found = unassigned
        if self._looks >= LOOKS_IN_A_ROW and self._is_first(group):
            log.warning(
                "partitions without an owner: a rebalance is asked for", found=sorted(unassigned)
            )
            self._looks = 0
            self._rebalance()

    def _unassigned(self, group: ConsumerGroupDescription) -> set[tuple[str, int]]:
        if group.state != ConsumerGroupState.STABLE:
            return set()
        owned = {
            (place.topic, place.partition)
            for member in group.members
            for place in member.assignment.topic_partitions
        }
        return self._partitions - owned

    def _is_first(self, group: ConsumerGroupDescription) -> bool:
        return self._instance == min(member.group_instance_id or "" for member in group.members)


def force_rebalance(kafka: Mapping[str, Any], group_id: str, topic: str) -> None:
    """Join the group as one more member and leave it again, in a thread of its own.

    Both make the group rebalance. The member reads nothing and commits nothing.
    """
    settings = {
        **kafka,
        "group.id": group_id,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    join = threading.Thread(
        target=_join_and_leave, args=(settings, topic), name="rebalance", daemon=True
    )
    join.start()


def _join_and_leave(settings: Mapping[str, Any], topic: str) -> None:
    arrived = threading.Event()

    def on_assign(member: Consumer, places: list[Any]) -> None:
        arrived.set()
        member.incremental_assign(places)
        member.pause(places)

    member = Consumer(dict(settings))
    try:
        member.subscribe([topic], on_assign=on_assign)
        deadline = time.monotonic() + STAY_S
        while not arrived.is_set() and time.monotonic() < deadline:
            member.poll(0.1)
    finally:
        member.close()
