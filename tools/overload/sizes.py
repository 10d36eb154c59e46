"""Sizes of the scenarios: the full sizes of docs/notes/reliability.md, or smaller ones."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
LEAST_ON_DISK = 300_000
"""This number of records fills a memtable in each of four shards. A memtable is written to a file
only when it is full, and only files survive a kill."""


@dataclass(frozen=True, slots=True)
class Sizes:
    instant_records: int = 5_000_000
    faster_per_s: int = 100_000
    faster_s: int = 600
    faster_value_bytes: int = 40
    after_per_s: int = 100
    after_s: int = 10
    targets: int = 10_000
    targets_records: int = 200_000
    large_records: int = 5_000
    large_value_bytes: int = MIB
    partitions: int = 1_000
    partitions_records: int = 1_000_000
    reboot_records: int = 50_000_000
    sample_records: int = 10_000
    probe_records: int = 200
    spread_s: int = 60
    warm_records: int = 20_000


def scaled(scale: float) -> Sizes:
    """Return scaled sizes, but at least useful minimums. The size of a record stays the same."""
    whole = Sizes()

    def part(of: int, least: int) -> int:
        return max(least, round(of * scale)) if scale < 1 else round(of * scale)

    return Sizes(
        instant_records=part(whole.instant_records, 1_000),
        faster_per_s=part(whole.faster_per_s, 1_000),
        faster_s=part(whole.faster_s, 5),
        after_s=part(whole.after_s, 3),
        targets=part(whole.targets, 10),
        targets_records=part(whole.targets_records, 1_000),
        large_records=part(whole.large_records, 20),
        partitions=part(whole.partitions, 8),
        partitions_records=part(whole.partitions_records, 1_000),
        reboot_records=part(whole.reboot_records, LEAST_ON_DISK),
        sample_records=part(whole.sample_records, 100),
        spread_s=part(whole.spread_s, 8),
        warm_records=part(whole.warm_records, 500),
    )
