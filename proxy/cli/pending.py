"""`pending`, `pending list`, `find`, `purge` and `reschedule`: the pending records."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import typer

from proxy.cli.admin_port import (
    Answer,
    Instances,
    NotThere,
    ask_any,
    refuse_silent,
    say_silent,
    too_old,
)
from proxy.cli.store import local_shards
from proxy.cli.terminal import (
    AsJson,
    Config,
    EachAdmin,
    Utc,
    checked_delay_ms,
    checked_ident,
    checked_instant_ms,
    checked_origin,
    checked_pattern,
    counted,
    say,
    say_json,
    say_table,
    settings_for,
    show_utc,
    shown_time,
)
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin
from proxy.errors import ProxyError
from proxy.kafka.access import Connection
from proxy.logs import plain
from proxy.protocol.body import Delivery, LeftInKafka
from proxy.protocol.outcomes import MISSED
from proxy.telemetry.collectors import LONG_PAST_MS

BROKER_LIMIT_S: Final = 2.0


def missing_partitions(settings: Settings, covered: Collection[int]) -> list[int] | None:
    """Return the ingress partitions without an instance. None if the broker does not answer."""
    try:
        connection = Connection(settings)
        connection.limit_s = BROKER_LIMIT_S
        count = len(connection.describe_topic(settings.topics.ingress).partitions)
    except ProxyError:
        return None
    return sorted(set(range(count)).difference(covered))


def _covered(covered: Collection[int]) -> str:
    return f"Partitions covered: {_numbers(covered)}"


def _numbers(partitions: Collection[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


def _repeated(answers: Iterable[Answer]) -> list[int]:
    times = Counter(number for said in answers for number in said["partitions"])
    return sorted(number for number, count in times.items() if count > 1)


def _say_repeated(numbers: Collection[int]) -> None:
    if numbers:
        twice = f"Counted more than once: {_numbers(numbers)}."
        say(f"{twice} Is an instance named twice, or does one just come or go?")


def _say_missing(missing: list[int] | None) -> None:
    if missing is None:
        say("Whether that is all of the ingress is not known: the broker does not answer.")
    elif missing:
        say(f"Not covered: {_numbers(missing)}. Name every instance with --admin.")


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
        _count_at_instances(settings_for(config), admin, as_json=as_json)
        return
    entries = (entry for shard in local_shards(data_dir) for entry in shard.entries())
    by_target, by_due = count_entries(entries, wall_clock_ms())
    total = sum(by_target.values())
    if as_json:
        say_json({"pending": total, "by_target": by_target, "by_due": by_due})
        return
    _say_counts("target", by_target)
    _say_counts("due", by_due)
    say(_wait(total))


def _count_at_instances(settings: Settings, admin: list[str] | None, *, as_json: bool) -> None:
    instances = Instances(settings, admin)
    answers, silent = instances.each(lambda address: _counts(instances, address))
    by_target = Counter[str]()
    for said in answers:
        by_target.update(said["by_target"])
    others = sum(said["others"] for said in answers)
    partitions = {number for said in answers for number in said["partitions"]}
    total, twice = by_target.total() + others, _repeated(answers)
    missing, most_first = missing_partitions(settings, partitions), dict(by_target.most_common())
    if as_json:
        said = {"pending": total, "by_target": most_first, "others": others}
        covered = {"partitions": sorted(partitions), "partitions_missing": missing}
        say_json({**said, **covered, "partitions_twice": twice, "silent": silent})
    else:
        _say_counts("target", most_first | ({OTHERS: others} if others else {}))
        say(f"{_wait(total)} {_covered(partitions)}.")
        _say_repeated(twice)
        _say_missing(missing)
    refuse_silent(silent)


def _counts(instances: Instances, address: str) -> Answer:
    said = instances.ask_one(address, "/pending")
    if "partitions" not in said:
        raise too_old(address)
    return said


def _wait(records: int) -> str:
    return f"{counted(records, 'record')} {'waits' if records == 1 else 'wait'}."


def count_entries(
    entries: Iterable[Delivery | LeftInKafka], now_ms: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Count by target, highest first, and by remaining time, nearest first."""
    by_target: Counter[str] = Counter()
    by_due = dict.fromkeys([*SPANS_MS, LATER], 0)
    for due_ms, _offset, target, *_ in entries:
        by_target[target] += 1
        by_due[_span(due_ms - now_ms)] += 1
    return dict(by_target.most_common()), {span: count for span, count in by_due.items() if count}


def _say_counts(what: str, counts: Mapping[str, int]) -> None:
    if counts:
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        say_table([what, "records waiting"], rows)


def _span(left_ms: int) -> str:
    return next((span for span, length_ms in SPANS_MS.items() if left_ms <= length_ms), LATER)


PAGE_RECORDS: Final = 1_000
LAST: Final = 2**63
COLUMNS: Final = ("fires", "due", "target", "id", "origin", "bytes", "why")

Found = Mapping[str, Any]
Target = Annotated[str | None, typer.Option(help="Only those for this target, or pattern.")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Only those that fire then or later: RFC 3339, epoch ms."),
]
To = Annotated[str | None, typer.Option("--to", help="Only those that fire by then.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="The first so many.")]


class Listed(NamedTuple):
    """Records of some instances."""

    records: list[Found]
    partitions: set[int]
    has_more: bool = False
    silent: Mapping[str, str] = {}


def list_pending(
    target: Target = None,
    since: From = None,
    until: To = None,
    id_prefix: Annotated[str | None, typer.Option(help="Only those whose id begins so.")] = None,
    limit: Limit = 100,
    admin: EachAdmin = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """List the records that wait, in the order in which they fire, over all instances."""
    show_utc(is_wanted=utc)
    settings = settings_for(config)
    times = {"due_from": _instant_ms(since), "due_to": _instant_ms(until)}
    asked = {"target": target, **times, "id_prefix": id_prefix}
    filters = {name: str(value) for name, value in asked.items() if value is not None}
    instances = Instances(settings, admin)
    found = _together(instances, lambda address: _list(instances, address, filters, limit))
    records, has_more = sorted(found.records, key=_place), found.has_more
    has_more = has_more or len(records) > limit
    found = found._replace(records=records[:limit])
    missing = missing_partitions(settings, found.partitions)
    if as_json:
        say_json({**_json(found), "partitions_missing": missing, "more": has_more})
    else:
        _say_records(found.records)
        more = "; there are more, see --limit" if has_more else ""
        say(f"{counted(len(found.records), 'record')}{more}. {_covered(found.partitions)}.")
        _say_missing(missing)
    refuse_silent(found.silent)


def find(
    ident: Annotated[str | None, typer.Option("--id", help="Its id.")] = None,
    origin: Annotated[
        str | None, typer.Option(help="topic/partition/offset of the ingress record.")
    ] = None,
    target: Target = None,
    since: From = None,
    until: To = None,
    body: Annotated[
        bool, typer.Option("--body", help="With --origin: key, value and headers, too.")
    ] = False,
    limit: Limit = 100,
    admin: EachAdmin = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """Find what waits by id or by origin, or by target and time, at whichever instance."""
    show_utc(is_wanted=utc)
    if ident is None and origin is None:
        if target is None and since is None and until is None:
            raise typer.BadParameter("name --id, --origin, --target, --from or --to")
        list_pending(target, since, until, None, limit, admin, config, as_json, utc)
        return
    settings = settings_for(config)
    instances = Instances(settings, admin)
    missing: list[int] | None = []
    since_ms, until_ms = _instant_ms(since), _instant_ms(until)
    if origin is not None:
        found = _at_origin(instances, checked_origin(origin), with_body=body)
        _refuse_unknown(found, origin)
        kept = [one for one in found.records if ident is None or one["id"] == ident]
    else:
        found = _with_id(instances, checked_ident(ident or ""))
        missing = missing_partitions(settings, found.partitions)
        kept = found.records
    kept = [one for one in kept if _fits(one, target, since_ms, until_ms)]
    found = found._replace(records=kept[:limit])
    if as_json:
        say_json({**_json(found), "partitions_missing": missing})
    else:
        _say_records(found.records)
        many = f"{len(kept):,} found." if kept else "Nothing waits so."
        say(f"{many} {_covered(found.partitions)}.")
        _say_missing(missing)
    refuse_silent(found.silent)


def _together(instances: Instances, asking: Callable[[str], Listed]) -> Listed:
    answers, silent = instances.each(asking)
    return Listed(
        [record for one in answers for record in one.records],
        {partition for one in answers for partition in one.partitions},
        any(one.has_more for one in answers),
        silent,
    )


def _list(instances: Instances, address: str, filters: Mapping[str, str], limit: int) -> Listed:
    records, partitions = list[Found](), set[int]()
    cursor: str | None = ""
    while cursor is not None and len(records) < limit:
        query = {**filters, "limit": str(min(limit - len(records), PAGE_RECORDS))}
        query |= {"cursor": cursor} if cursor else {}
        said = instances.ask_one(address, f"/pending/records?{urlencode(query)}")
        records.extend(said["records"])
        partitions.update(said["partitions"])
        cursor = said["cursor"]
    return Listed(records, partitions, cursor is not None)


def _with_id(instances: Instances, ident: str) -> Listed:
    path = f"/records?{urlencode({'id': ident})}"

    def ask_one(address: str) -> Listed:
        found = _found(instances, address, path)
        partitions = found.partitions or set(_counts(instances, address)["partitions"])
        return found._replace(partitions=partitions)

    return _together(instances, ask_one)


def _at_origin(instances: Instances, origin: Origin, *, with_body: bool) -> Listed:
    path = f"/records/{quote(str(origin))}{'?body=true' if with_body else ''}"
    found = _together(instances, lambda address: _found(instances, address, path))
    return found._replace(partitions={origin.partition} if found.records else set())


def _found(instances: Instances, address: str, path: str) -> Listed:
    try:
        said = instances.ask_one(address, path)
    except NotThere:
        return Listed([], set())
    return Listed(said.get("records", [said]), set(said.get("partitions", ())))


def _place(record: Found) -> tuple[int, int, int]:
    _topic, partition, offset = str(record["origin"]).rsplit("/", 2)
    fires_ms = record["fires"]
    return LAST if fires_ms is None else int(fires_ms), int(partition), int(offset)


def _fits(record: Found, target: str | None, since_ms: int | None, until_ms: int | None) -> bool:
    if target is not None and not fnmatchcase(record["target"] or "", target):
        return False
    fires_ms = record["fires"] if record["fires"] is not None else record["due"]
    if fires_ms is None:
        return since_ms is None and until_ms is None
    is_late_enough = since_ms is None or fires_ms >= since_ms
    return is_late_enough and (until_ms is None or fires_ms <= until_ms)


def _instant_ms(text: str | None) -> int | None:
    return None if text is None else checked_instant_ms(text)


def _json(found: Listed) -> dict[str, Any]:
    partitions = sorted(found.partitions)
    return {"records": found.records, "partitions": partitions, "silent": found.silent}


def _say_records(records: Sequence[Found]) -> None:
    if records:
        say_table(COLUMNS, map(_row, records), whole=("origin",))
    for record in records:
        for name in ("key", "value"):
            if isinstance(part := record.get(name), dict):
                say(f"{name}: {_text(part)}")
        for header in record.get("headers", []):
            say(f"{plain(header['name'])}: {_text(header['value'] or {})}")


def _text(part: Mapping[str, Any]) -> str:
    return plain(part.get("text", part.get("base64")))


def _row(record: Found) -> list[str]:
    size_bytes = record.get("bytes")
    attempt = f" {record['attempt']}" if record.get("attempt") else ""
    reason = f": waits for a retry because {record['reason']}" if record.get("reason") else ""
    return [
        *("" if ms is None else shown_time(ms) for ms in (record["fires"], record["due"])),
        *(plain(record[name]) for name in ("target", "id", "origin")),
        "" if size_bytes is None else f"{size_bytes:,}",
        plain(record.get("why") or record.get("state")) + attempt + plain(reason),
    ]


def _refuse_unknown(found: Listed, origin: str) -> None:
    if not found.records:
        refuse_silent(found.silent)
        raise NotThere(
            f"None of the instances asked knows {origin}.",
            "Name it as topic/partition/offset of the ingress, and every instance with --admin.",
        )


ANSWER_WITHIN_S: Final = 90.0
PURGE_NOT_YET: Final = (
    "The purge is written, and counts as soon as each partition has read it; not all have yet: is "
    "the proxy behind (see /readyz), or is taking in paused (see `pauses`)?"
)


def purge(
    targets: Annotated[str, typer.Argument(help="A target, or a pattern like 'orders-*'.")],
    since: Annotated[
        str | None, typer.Option("--from", help="Only what is due then or later: RFC 3339, ms.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Only what is due by then.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    admin: EachAdmin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Have nothing delivered that waits for these targets now, in all partitions.

    Each record ends with the outcome `cancelled`. Undecided half messages are left alone. Each
    instance named counts its own; the purge counts for all. Exit code 1 where it does not count
    everywhere yet, with --dry-run where an instance that was to count is silent."""
    if as_json and not (dry_run or yes):
        raise typer.BadParameter("with --json nobody is asked: name --yes, or --dry-run")
    settings = settings_for(config)
    instances = Instances(settings, admin)
    times = {"due_from": _instant_ms(since), "due_to": _instant_ms(until)}
    body = {"targets": checked_pattern(targets), **times}
    how: dict[str, Any] = {"method": "POST", "within_s": ANSWER_WITHIN_S}
    answers, silent = instances.ask("/purges", body={**body, "dry_run": True}, **how)
    done = _sum(answers)
    missing = missing_partitions(settings, done["partitions"])
    if not as_json:
        say(f"{_purged(done)}.")
        _say_repeated(done["partitions_twice"])
        say_silent(silent)
        _say_missing(missing)
    if not (dry_run or yes):
        typer.confirm("Purge it, in all partitions?", abort=True)
    done |= {"partitions_missing": missing, "silent": silent}
    if not dry_run:
        answering = next(address for address in instances.addresses if address not in silent)
        said = instances.ask_one(answering, "/purges", body={**body, "dry_run": False}, **how)
        done |= {name: said[name] for name in ("dry_run", "purges", "applied")}
    _tell_purge(done, as_json=as_json)


def _tell_purge(done: Answer, *, as_json: bool) -> None:
    if as_json:
        say_json(done)
    if done["dry_run"]:
        if not as_json:
            say("Nothing was done.")
        refuse_silent(done["silent"])
        return
    if not as_json:
        origins = ", ".join(done["purges"])
        purged = f"purged: nothing that waits for {done['targets']} is delivered: {origins}"
        say(purged if done["applied"] else PURGE_NOT_YET)
    raise typer.Exit(0 if done["applied"] else 1)


def _sum(answers: Sequence[Answer]) -> Answer:
    return answers[0] | {
        "partitions_twice": _repeated(answers),
        "records": sum(said["records"] for said in answers),
        "counted_all": all(said["counted_all"] for said in answers),
        "partitions": sorted({number for said in answers for number in said["partitions"]}),
    }


def _purged(done: Answer) -> str:
    more = "" if done["counted_all"] else "at least "
    since = "" if done["due_from"] is None else f" from {shown_time(done['due_from'])}"
    until = "" if done["due_to"] is None else f" to {shown_time(done['due_to'])}"
    due = f", due{since}{until}," if since or until else ""
    records = done["records"]
    wait = "waits" if records == 1 else "wait"
    shown = f"{more}{counted(records, 'record')} for {done['targets']}{due} {wait}"
    return f"{shown}. {_covered(done['partitions'])}"


WAIT: Final = "10s"
TOO_LATE: Final = "too late: the record had ended before, and nothing was changed"
NOT_MOVED_YET: Final = (
    "written as {origin}; what becomes of it is not known yet: is the proxy behind?"
)


def reschedule(
    origin: Annotated[
        str, typer.Argument(help="topic/partition/offset: what `pending list` shows.")
    ],
    at: Annotated[str | None, typer.Option(help="When: RFC 3339 with a zone, or epoch ms.")] = None,
    delay: Annotated[str | None, typer.Option(help="From now on: 30s, 5m, PT1H ...")] = None,
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of the admin port that serves it.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Have a record that waits delivered at another time: --at or --delay.

    Exit code 1 where it had ended before, or where that is not known yet."""
    deliver_at_ms, place = _deliver_at_ms(at, delay), checked_origin(origin)
    path, body = f"/records/{quote(str(place))}?wait={WAIT}", {"deliver_at": deliver_at_ms}
    done = ask_any(settings_for(config), admin, "PATCH", path, body, ANSWER_WITHIN_S)
    is_moved = done["outcome"] not in (None, MISSED)
    if as_json:
        say_json(done)
    elif is_moved:
        say(f"moved: due {shown_time(deliver_at_ms)}, now {done['origin']}")
    else:
        say(TOO_LATE if done["outcome"] == MISSED else NOT_MOVED_YET.format(**done))
    raise typer.Exit(0 if is_moved else 1)


def _deliver_at_ms(at: str | None, delay: str | None) -> int:
    if (at is None) is (delay is None):
        raise typer.BadParameter("name either --at or --delay")
    if not at:
        return wall_clock_ms() + checked_delay_ms(delay or "")
    deliver_at_ms = checked_instant_ms(at)
    if deliver_at_ms < wall_clock_ms() - LONG_PAST_MS:
        raise typer.BadParameter(
            f"{at} is {shown_time(deliver_at_ms)}: epoch times are milliseconds. For at once "
            "write --delay 0"
        )
    return deliver_at_ms
