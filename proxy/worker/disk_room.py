"""Keeps a worker out of the group while its disk is full and another instance can serve.

Below the reserve of the disk (`disk_reserve`) a worker reads nothing new. So it leaves partitions
to others as long as there are any. Where it is alone it serves all the same, and delivers what is
due.
"""

import re
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import structlog

from proxy.config.disk_reserve import DiskReserve
from proxy.config.sizes import shown_size
from proxy.kafka.group.owners import GroupOwners, OwnersUnknown
from storage.errors import why_and_remedy

LOOK_EVERY_S: Final = 1.0
ASK_EVERY_S: Final = 10.0
SAY_EVERY_S: Final = 60.0
LEAVE_AFTER_S: Final = 120.0
SPREAD_S: Final = 120
"""Instances whose disks fill together do not leave together."""
ALONE_FACTOR: Final = 10
"""So much longer stays an instance that began without room, since it found nobody else."""
PROBE: Final = ".room"
PROBE_BYTES: Final = 4096
STATIC_MEMBER: Final = re.compile(r"(.+)-\d+[-_][0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The member id that a broker makes for a worker of an instance: `client_settings`."""

log = structlog.get_logger(__name__)


class DiskRoom:
    """One worker of `instance`, over all its sessions.

    `ask` asks who is in the group. `disk_space` gives size and free bytes of the disk.
    """

    def __init__(
        self,
        instance: str,
        data_dir: Path,
        reserve: DiskReserve,
        disk_space: Callable[[], tuple[int, int]],
        ask: Callable[[], Future[GroupOwners]],
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._instance, self._data_dir = instance, data_dir
        self._reserve, self._disk_space = reserve, disk_space
        self._ask, self._heartbeat = ask, heartbeat
        self._now_s, self._sleep = now_s, sleep
        self._leave_after_s = LEAVE_AFTER_S + zlib.crc32(instance.encode()) % SPREAD_S
        self._answer: Future[GroupOwners] | None = None
        self._has_others = False
        self._asked_s = self._said_s = self._looked_s = -SAY_EVERY_S
        self._held_since_s: float | None = None
        self._serves_all_the_same = False

    def wait(self, is_stopping: Callable[[], bool]) -> None:
        """Return once there is room, nobody else is in the group, or the worker is to stop."""
        self._held_since_s, self._serves_all_the_same = None, False
        if self._shortage() is None:
            return
        while not is_stopping() and (shortage := self._shortage()) is not None:
            if self._is_alone_known() and not self._has_others:
                self._serves_all_the_same = True
                return
            if self._has_others and self._now_s() >= self._said_s + SAY_EVERY_S:
                self._said_s = self._now_s()
                log.error(
                    "the disk has no room: this instance leaves the partitions to the others",
                    why=shortage[0],
                    remedy=shortage[1],
                )
            self._heartbeat()
            self._sleep(LOOK_EVERY_S)

    def must_leave(self, *, is_held: bool) -> bool:
        """Whether reading has been held for so long that another instance should serve.

        `is_held`: reading is held for want of room on the disk. Called in each turn.
        """
        now_s = self._now_s()
        if now_s < self._looked_s + LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        if not is_held:
            self._held_since_s, self._serves_all_the_same = None, False
            return False
        if self._held_since_s is None:
            self._held_since_s = now_s
        factor = ALONE_FACTOR if self._serves_all_the_same else 1
        if now_s < self._held_since_s + self._leave_after_s * factor:
            return False
        return self._is_alone_known() and self._has_others and self._shortage() is not None

    def _shortage(self) -> tuple[str, str] | None:
        """Why this disk has no room, and what to do. None where it has some."""
        try:
            size_bytes, free_bytes = self._disk_space()
            self._reserve.observe(size_bytes, free_bytes)
            if not self._reserve.is_short:
                self._probe()
                return None
        except OSError as error:
            return why_and_remedy(self._data_dir, error)
        free, reserve = shown_size(free_bytes), shown_size(self._reserve.of(size_bytes))
        return (
            f"{free} are free, less than disk_reserve ({reserve})",
            f"Free some space on the disk of {self._data_dir}, or lower `disk_reserve`",
        )

    def _probe(self) -> None:
        place = self._data_dir / PROBE
        try:
            place.write_bytes(bytes(PROBE_BYTES))
        finally:
            place.unlink(missing_ok=True)

    def _is_alone_known(self) -> bool:
        """Take the newest answer, ask again now and then. False before the first answer."""
        if self._answer is None and self._now_s() >= self._asked_s + ASK_EVERY_S:
            self._asked_s, self._answer = self._now_s(), self._ask()
        if self._answer is None or not self._answer.done():
            return False
        answer, self._answer = self._answer, None
        try:
            self._has_others = any(map(self._is_other, answer.result().members))
        except OwnersUnknown as unknown:
            log.debug("members of the group not known", why=str(unknown))
            return False
        return True

    def _is_other(self, member: str) -> bool:
        found = STATIC_MEMBER.fullmatch(member)
        return found is not None and found[1] != self._instance
