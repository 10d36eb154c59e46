"""Scenarios for the kinds of store."""

from dataclasses import dataclass, replace

from tools.benchmarks.scale import FAR_MS

DAY_MS = 86_400_000
SMALL, MIDDLE, LARGE = 100, 1_024, 16_384
BODIES_BYTES = (SMALL, MIDDLE, LARGE)
FEW_BYTES, MANY_BYTES = 1 << 28, 1 << 30
DRAINED_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """Records are put, the store is closed and opened in another process, and time passes in
    steps.

    `delay_ms` is the range of random delays. None means that each record has one of the 18 delay
    levels, and ten records arrive in a millisecond. If `is_cold`, the store's files are dropped
    from the page cache before the store is opened again.
    `is_cancelled` gives each record an id and cancels every second one. `is_partly_drained`
    stops after a tenth of the records, at most 100,000."""

    name: str
    title: str
    delay_ms: tuple[int, int] | None
    step_ms: int
    records: int = 200_000
    most_bytes: int = FEW_BYTES
    bodies_bytes: tuple[int, ...] = (MIDDLE,)
    is_cold: bool = False
    is_cancelled: bool = False
    is_partly_drained: bool = False

    def records_of(self, body_bytes: int, scale: float) -> int:
        """Return the number of records. It is lower for large bodies, to limit the total bytes."""
        return max(1, int(min(self.records, self.most_bytes // body_bytes) * scale))

    def drained_of(self, records: int) -> int:
        return min(DRAINED_RECORDS, -(-records // 10)) if self.is_partly_drained else records


INSTANT = Scenario("instant", "one instant", (1, 1), 10)
DENSE = Scenario("dense", "within 30 s", (1, 30_000), 10, bodies_bytes=BODIES_BYTES)
MINUTES = Scenario("minutes", "within 10 min", (1, 600_000), 200)
FIXED = Scenario("fixed", "18 fixed delays", None, 2_400)
CANCEL = replace(
    MINUTES, name="cancel", title="within 10 min, half of them cancelled", is_cancelled=True
)
SPARSE = Scenario(
    "sparse", "within 30 days", (1, 30 * DAY_MS), 864_000, bodies_bytes=BODIES_BYTES, is_cold=True
)
WAITING = Scenario(
    "waiting",
    "within 6 days",
    FAR_MS,
    10_000,
    records=1_000_000,
    most_bytes=MANY_BYTES,
    bodies_bytes=BODIES_BYTES,
    is_cold=True,
    is_partly_drained=True,
)
WAITING_10M = replace(
    WAITING,
    name="waiting-10m",
    records=10_000_000,
    bodies_bytes=(SMALL,),
)

SCENARIOS = {
    one.name: one for one in (INSTANT, DENSE, MINUTES, FIXED, CANCEL, SPARSE, WAITING, WAITING_10M)
}
