"""The static member of one worker, and whether another process has taken its place in the group.

Kafka gives the place of a static member to the process that joins last. So a restart takes it from
its dead predecessor at once, and two processes of one name would take it from each other for ever.
A member id tells whose the place is: the broker makes one for each process. The file in the data
folder, which belongs to one `run` at a time, has the last one of ours.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from proxy.errors import InstanceConflict

ASK_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5
MARGIN_S: Final = 3.0
"""So much later than its session a member that has died is out of the group."""
MEMBER_FILE: Final = "member-"
UUID: Final = "[-_][0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Behind the name of a static member in the member id that the broker makes for it."""

log = structlog.get_logger(__name__)


class Member(NamedTuple):
    """A member of the group: its id, and the host that the broker sees it at."""

    ident: str
    host: str


class StaticMember:
    """Worker number `worker` of the instance, as the group knows it.

    `ask` gives the members of the group, and raises KafkaException where no answer comes.
    """

    def __init__(
        self,
        instance: str,
        worker: int,
        data_dir: Path,
        ask: Callable[[], list[Member]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = f"{instance}-{worker}"
        self._ask, self._sleep = ask, sleep
        self._file = data_dir / f"{MEMBER_FILE}{worker}"

    def joined(self, ident: str) -> None:
        """Remember the member id that the broker has given to this process."""
        with suppress(OSError):
            self._file.write_text(ident, "utf-8")

    def refuse_twin(self, session_s: float, heartbeat: Callable[[], None]) -> None:
        """Wait until a member of this name that is not ours is out of the group.

        One that is still there after its session of `session_s` is alive: raises InstanceConflict.
        Where the broker does not answer nothing is known, and nothing is waited for.
        """
        if (other := self._other()) is None:
            return
        log.warning(
            "another process has this instance id: waiting whether it is alive",
            member=other.ident,
            host=other.host,
            at_most_s=session_s + MARGIN_S,
        )
        for _ in range(round((session_s + MARGIN_S) / LOOK_EVERY_S)):
            self._sleep(LOOK_EVERY_S)
            heartbeat()
            if (other := self._other()) is None:
                return
        raise InstanceConflict(self.name, f"it is alive in the consumer group, at {other.host}")

    def is_other(self, ident: str) -> bool:
        """Whether a member id is of this name, and not the last one of ours."""
        return bool(re.fullmatch(re.escape(self.name) + UUID, ident)) and ident != self._last()

    def _other(self) -> Member | None:
        try:
            return next((one for one in self._ask() if self.is_other(one.ident)), None)
        except KafkaException as error:
            log.debug("members of the group not known", error=str(error))
            return None

    def _last(self) -> str:
        try:
            return self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


def asking(kafka: Mapping[str, Any], group_id: str) -> Callable[[], list[Member]]:
    """Return a function that lists the members of the group.

    It makes no call to the group's coordinator: librdkafka may abort the process in one
    (`proxy.kafka.group.owners`).
    """
    made: list[AdminClient] = []

    def ask() -> list[Member]:
        if not made:
            made.append(AdminClient(dict(kafka)))
        groups = made[0].list_groups(group_id, ASK_S)
        return [
            Member(str(one.id), str(one.client_host)) for group in groups for one in group.members
        ]

    return ask
