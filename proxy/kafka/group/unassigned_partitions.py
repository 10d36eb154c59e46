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
from confluent_kafka import Consumer

from proxy.kafka.group.owners import GroupOwners, OwnersUnknown, Place

LOOK_EVERY_S: Final = 3.0
LOOKS_IN_A_ROW: Final = 2
"""So many find the same before anything is done: a rebalance may have just begun."""
LOOKS_UNTIL_WHOLE: Final = 5
"""After so many in a row that find an owner for each partition nobody looks any more."""
PAUSE_S: Final = 30.0
"""After a rebalance was asked for; other members that have just begun may ask for one as well."""
STAY_S: Final = 15.0

log = structlog.get_logger(__name__)


class UnassignedPartitions:
    """Looks at the group while a session is young, without waiting for the answer.

    Only a member that begins can have left partitions to nobody, so it looks until it has seen the
    group whole. `ask` asks who owns what; `rebalance` makes the group rebalance.
    """

    def __init__(
        self,
        ask: Callable[[], Future[GroupOwners]],
        partitions: set[Place],
        rebalance: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._partitions, self._rebalance = ask, partitions, rebalance
        self._now_s = now_s
        self._next_look_s = now_s() + LOOK_EVERY_S
        self._answer: Future[GroupOwners] | None = None
        self._found: set[Place] = set()
        self._looks = self._whole = 0

    def watch(self, partitions: set[Place]) -> None:
        """Some were added: look for owners of these, once the members may have seen them."""
        self._partitions = partitions
        self._looks = self._whole = 0
        self._next_look_s = self._now_s() + PAUSE_S

    def look(self) -> None:
        """Called often; asks the brokers every LOOK_EVERY_S and takes the answer that has come."""
        if self._answer is not None:
            if self._answer.done():
                self._take(self._answer)
                self._answer = None
        elif self._whole < LOOKS_UNTIL_WHOLE and self._now_s() >= self._next_look_s:
            self._next_look_s = self._now_s() + LOOK_EVERY_S
            self._answer = self._ask()

    def _take(self, answer: Future[GroupOwners]) -> None:
        try:
            group = answer.result()
        except OwnersUnknown as error:
            log.debug("owners of partitions not known", error=str(error))
            return
        unassigned = self._partitions - group.owned if group.is_stable else set[Place]()
        is_same = bool(unassigned) and unassigned == self._found
        self._looks = self._looks + 1 if is_same else bool(unassigned)
        self._whole = self._whole + 1 if group.is_stable and not unassigned else 0
        self._found = unassigned
        if self._looks >= LOOKS_IN_A_ROW:
            log.warning(
                "partitions without an owner: a rebalance is asked for", found=sorted(unassigned)
            )
            self._looks = 0
            self._next_look_s = self._now_s() + PAUSE_S
            self._rebalance()


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
