"""A record of `dlq.<group>`: one that a group's consumers could not handle and gave up.

Its headers: docs/client.md#retries.
"""

from dataclasses import dataclass
from typing import Final

from proxy.client.retries.received import (
    ATTEMPT,
    EXCEPTION,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
)
from proxy.dead_letters.letters.edits import Edits, is_stamp
from proxy.dead_letters.letters.letter import Letter
from proxy.protocol.body import Headers
from proxy.protocol.headers import ATTEMPT as TIMER_ATTEMPT
from proxy.protocol.headers import DELAY, ORIGIN, RETRY_GROUP

LONGEST_REASON: Final = 80
NOT_SAID: Final = "unknown"
AT_ONCE: Final = b"0"
NO_FAILURE: Final = b"0"


@dataclass(frozen=True, slots=True)
class GroupLetter(Letter):
    """One record of a group's dead letters, whole; the proxy brought it there.

    `origin` is the request with which the consumer gave up, `target` the topic of the record that
    it could not handle. What other clients than ours do not tell is unknown.
    """

    @property
    def is_ours(self) -> bool:
        """Whether the proxy has written it."""
        return self.text(ORIGIN) is not None

    @property
    def reason(self) -> str | None:
        """The consumer's last exception, its first line; None in a record of somebody else."""
        if not self.is_ours:
            return None
        lines = (self.text(EXCEPTION) or "").strip().splitlines()
        return lines[0][:LONGEST_REASON] if lines else NOT_SAID

    @property
    def detail(self) -> str | None:
        """The whole exception."""
        return self.text(EXCEPTION)

    @property
    def target(self) -> str | None:
        """The topic that it first came from."""
        return self.text(ORIGINAL_TOPIC)

    @property
    def lacks_value(self) -> bool:
        """Never: what does not fit into this topic is a dead letter of the proxy's."""
        return False

    @property
    def meaning(self) -> str:
        """How often a consumer failed, and with which record."""
        place = [self.text(one) for one in (ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET)]
        where = "/".join(one or "?" for one in place) if any(place) else "a place that is not said"
        return f"its consumers gave up after {self.text(ATTEMPT) or '?'} failures with {where}"

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return (
            "Mend the consumer, then replay: its group alone gets the record again, at once and "
            "with all its attempts."
        )

    def requests(self, edits: Edits, group: str) -> Headers:
        """The headers with which it goes back, through the retry topic, as if it had never failed.

        The edits come last: `timer-delay` and `timer-topic` among them say when and where instead.
        """
        asked: Headers = [
            (RETRY_GROUP, group.encode()),
            (TIMER_ATTEMPT, NO_FAILURE),
            (DELAY, AT_ONCE),
        ]
        own = [
            header
            for header in self.headers
            if not is_stamp(header[0]) and header[0] not in {ATTEMPT, EXCEPTION}
        ]
        return edits.applied([*asked, *own])
