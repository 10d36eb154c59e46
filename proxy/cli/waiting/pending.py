"""`pending`: how many wait, by target from the running proxies, or by due time from the local
data."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.cli.admin_port import addresses_of
from proxy.cli.local_shards import local_shards
from proxy.cli.terminal.options import AsJson, Config, EachAdmin, settings_for
from proxy.cli.terminal.output import counted, say, say_json, say_table
from proxy.cli.waiting.coverage import (
    missing_partitions,
    refuse_silent,
    say_missing,
    say_repeated,
    shown_partitions,
)
from proxy.cli.waiting.waiting_records import WaitingRecords
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.records.delivery import Delivery, LeftInKafka

SPANS_MS: Final = {
    "overdue": 0,
    "within a minute": 60_000,
    "within an hour": 3_600_000,
    "within a day": 86_400_000,
    "within a week": 7 * 86_400_000,
}
LATER: Final = "later"
OTHERS: Final = "(others)"


def pending(
    context: typer.Context,
    admin: EachAdmin = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Count on disk instead, by due time too; exact for a stopped proxy."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say how many records wait, by target: ask the running proxies, or read a data folder.

    `pending list` lists them one by one."""
    if context.invoked_subcommand is not None:
        return
    if data_dir is None:
        _ask_and_say(settings_for(config), admin, as_json=as_json)
        return
    entries = (entry for shard in local_shards(data_dir) for entry in shard.entries())
    by_target, by_due = count_entries(entries, wall_clock_ms())
    total = sum(by_target.values())
    if as_json:
        say_json({"pending": total, "by_target": by_target, "by_due": by_due})
        return
    _show("target", by_target)
    _show("due", by_due)
    say(_waiting(total))


def _ask_and_say(settings: Settings, admin: list[str] | None, *, as_json: bool) -> None:
    counts = WaitingRecords(addresses_of(settings.admin, admin), settings.admin.token).counted()
    total = sum(counts.by_target.values()) + counts.others
    missing = missing_partitions(settings, counts.partitions)
    if as_json:
        covered = {"partitions": sorted(counts.partitions), "partitions_missing": missing}
        covered["partitions_twice"] = counts.twice
        by_target = {"by_target": counts.by_target, "others": counts.others}
        say_json({"pending": total, **by_target, **covered, "silent": counts.silent})
    else:
        others = {OTHERS: counts.others} if counts.others else {}
        _show("target", counts.by_target | others)
        say(f"{_waiting(total)} Partitions covered: {shown_partitions(counts.partitions)}.")
        say_repeated(counts.twice)
        say_missing(missing)
    refuse_silent(counts.silent)


def _waiting(records: int) -> str:
    return f"{counted(records, 'record')} {'waits' if records == 1 else 'wait'}."


def count_entries(
    entries: Iterable[Delivery | LeftInKafka], now_ms: int
) -> tuple[dict[str, int], dict[str, int]]:
    """How many by target, the most first, and how many by time to go, the nearest first."""
    by_target: Counter[str] = Counter()
    by_due = dict.fromkeys([*SPANS_MS, LATER], 0)
    for due_ms, _offset, target, *_ in entries:
        by_target[target] += 1
        by_due[_span(due_ms - now_ms)] += 1
    return dict(by_target.most_common()), {span: count for span, count in by_due.items() if count}


def _show(what: str, counts: Mapping[str, int]) -> None:
    if counts:
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        say_table([what, "records waiting"], rows)


def _span(left_ms: int) -> str:
    return next((span for span, length_ms in SPANS_MS.items() if left_ms <= length_ms), LATER)
