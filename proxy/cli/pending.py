"""`pending`: what waits, by target from the running proxy, or by due time from the local data."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client.parser import text_string_to_metric_families

from proxy.cli.admin_port import address_of, fetch, no_proxy
from proxy.cli.local_shards import local_shards
from proxy.cli.terminal.options import AsJson, Config, settings_for
from proxy.cli.terminal.output import say, say_json, say_table
from proxy.clock import wall_clock_ms
from proxy.records.delivery import Delivery, LeftInKafka

FAMILY = "delay_proxy_pending_records"
OWN_FAMILY = "delay_proxy_build_info"
"""Every proxy has it, also while nothing waits."""
SPANS_MS = {
    "overdue": 0,
    "within a minute": 60_000,
    "within an hour": 3_600_000,
    "within a day": 86_400_000,
    "within a week": 7 * 86_400_000,
}
LATER = "later"


def pending(
    context: typer.Context,
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of the proxy's admin server.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Count on disk instead, by due time too; exact for a stopped proxy."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say how many records wait, by target: ask the running proxy, or read its data folder.

    `pending list` lists them one by one."""
    if context.invoked_subcommand is not None:
        return
    if data_dir is not None:
        entries = (entry for shard in local_shards(data_dir) for entry in shard.entries())
        by_target, by_due = count_entries(entries, wall_clock_ms())
    else:
        settings = settings_for(config)
        address = admin or address_of(settings.admin)
        metrics = fetch(address, "/metrics", settings.admin.token)
        by_target, by_due = read_pending(metrics, address), {}
    total = sum(by_target.values())
    if as_json:
        due = {"by_due": by_due} if data_dir is not None else {}
        say_json({"pending": total, "by_target": by_target, **due})
        return
    _show("target", by_target)
    _show("due", by_due)
    say(f"{total:,} records wait.")


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


def read_pending(metrics_text: str, address: str) -> dict[str, int]:
    """Records waiting by target, the most first, over all workers. Raises ProxyUnreachable for
    metrics of something else."""
    try:
        families = list(text_string_to_metric_families(metrics_text))
    except ValueError:
        raise no_proxy(address) from None
    if all(family.name != OWN_FAMILY for family in families):
        raise no_proxy(address)
    counts: Counter[str] = Counter()
    for sample in (s for family in families if family.name == FAMILY for s in family.samples):
        counts[sample.labels["target"]] += int(sample.value)
    return dict(counts.most_common())


def _show(what: str, counts: dict[str, int]) -> None:
    if counts:
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        say_table([what, "records waiting"], rows)


def _span(left_ms: int) -> str:
    return next((span for span, length_ms in SPANS_MS.items() if left_ms <= length_ms), LATER)
