"""What was found of one ingress record: how it came to be, what it asks for, how it ended."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from proxy.dead_letters.letters.letter import Origin
from proxy.dead_letters.letters.marks import Mark
from proxy.lineage.chain.asked import Asked
from proxy.lineage.chain.matching import End
from proxy.lineage.chain.traced_record import TracedRecord

INGESTED: Final = "ingested"
HOPPED: Final = "hopped"
REPLAYED: Final = "replayed"
RETRIED: Final = "retried"
AFTER_A_GAP: Final = "after a gap"


class Control(NamedTuple):
    """A cancel, recall, commit, rollback or expiry that was applied to a record.

    kind: which of these; None where the ingress has deleted it.
    """

    end: End
    kind: str | None


@dataclass(slots=True)
class Link:
    """One ingress record of the chain. Filled as it is found, so that what is known by the time
    that runs out can be told.

    arrival: how it came to be, INGESTED to AFTER_A_GAP. `record` is None where the ingress has
    deleted it. It ended by an outcome (`end`), by `delivery`, or not yet. `ended`: of a control
    record, what it ended. `unreadable`: its outcome, where that cannot be read.
    """

    origin: Origin
    arrival: str
    record: TracedRecord | None = None
    asked: Asked | None = None
    end: End | None = None
    delivery: TracedRecord | None = None
    letter: TracedRecord | None = None
    replay: Mark | None = None
    successor: Origin | None = None
    ended: End | None = None
    unreadable: Origin | None = None
    controls: list[Control] = field(default_factory=list)
    checks: list[TracedRecord] = field(default_factory=list)

    @property
    def ended_ms(self) -> int | None:
        """When it ended; None: not, as far as is known."""
        last = self.end or self.delivery
        return None if last is None else last.timestamp_ms


@dataclass(slots=True)
class Trace:
    """All that was found, the first origin first.

    `unknown` are sentences about what cannot be told. is_whole: the time allowed was enough.
    """

    asked: Origin
    links: list[Link] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    is_whole: bool = True
