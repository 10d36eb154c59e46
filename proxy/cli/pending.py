"""`pending`, `pending list`, `find`, `purge`, `move` and `reschedule`: the pending records."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import typer

from proxy.cli.admin_port import (
    NONE_COVERED,
    Answer,
    Instance,
    Instances,
    NotThere,
    ProxyUnreachable,
    missing_in,
    refuse_silent,
    say_silent,
)
from proxy.cli.store import local_shards
from proxy.cli.terminal import (
    Times,
    argument,
    checked_delay_ms,
    checked_ident,
    checked_instant_ms,
    checked_origin,
    checked_pattern,
    counted,
    flag,
    option,
    say,
    say_json,
    say_table,
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

TIME: Final[dict[str, Any]] = {"parser": checked_instant_ms, "metavar": "TIME"}
BROKER_LIMIT_S: Final = 2.0
CHANGED_WITHIN_S: Final = 90.0


def missing_partitions(settings: Settings, covered: Collection[int]) -> list[int] | None:
    """Return the ingress partitions that are not in `covered`. Return None if the broker does not
    answer."""
    try:
        connection = Connection(settings)
        connection.limit_s = BROKER_LIMIT_S
        count = len(connection.describe_topic(settings.topics.ingress).partitions)
    except ProxyError:
        return None
    return sorted(set(range(count)).difference(covered))


def _missing(asked: Instances, covered: Collection[int], *, is_whole: bool) -> list[int] | None:
    """Return the partitions that the answers lack, as `missing_partitions` does. The broker is not
    asked if one instance says that its answer for the whole group is complete."""
    if is_whole and len(asked.addresses) == 1:
        return []
    return missing_partitions(asked.settings, covered)


def _is_whole(said: Answer) -> bool:
    return said.get("complete") is True


def _covered(partitions: Collection[int]) -> str:
    return f"Partitions covered: {_numbers(partitions)}."


def _numbers(partitions: Collection[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


def _repeated(answers: Iterable[Answer]) -> list[int]:
    times = Counter(number for said in answers for number in said["partitions"])
    return sorted(number for number, count in times.items() if count > 1)


def _say_repeated(numbers: Collection[int]) -> None:
    if numbers:
        twice = f"Counted more than once: {_numbers(numbers)}."
        say(f"{twice} Is an instance named twice? Or is an instance starting or stopping?")


NAME_ALL: Final = "Name every instance with --admin."
MOVING: Final = (
    "An instance has ended, or these partitions move or recover. Ask again when another instance "
    "has taken them over."
)


def _say_missing(asked: Instances, missing: list[int] | None) -> None:
    if missing is None:
        say("The broker does not answer, so it is not known whether these are all partitions.")
    elif missing:
        is_whole_group = asked.settings.admin.peers and len(asked.addresses) == 1
        say(f"Not covered: {_numbers(missing)}. {MOVING if is_whole_group else NAME_ALL}")


def _refuse_incomplete(missing: list[int] | None, silent: Mapping[str, str]) -> None:
    """End with exit code 1 if the answer lacks an instance or a partition. Raises
    InstanceSilent."""
    refuse_silent(silent)
    if missing != []:
        raise typer.Exit(1)


SPANS_MS: Final = {
    "overdue": 0,
    "within a minute": 60_000,
    "within an hour": 3_600_000,
    "within a day": 86_400_000,
    "within a week": 7 * 86_400_000,
}
LATER: Final = "later"


def pending(
    context: typer.Context,
    asked: Instances,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Count the records in this data folder instead, also by due time. Cancelled, "
            "replaced and moved records count until their old due."
        ),
    ] = None,
) -> None:
    """Count the pending records by target, in running proxies or in a data folder.

    `pending list` lists the records. Exit code 1: an instance did not answer, or it is not known
    whether all partitions are covered."""
    if context.invoked_subcommand is not None:
        return
    if data_dir is None:
        _count_at_instances(asked)
        return
    entries = (entry for shard in local_shards(data_dir) for entry in shard.entries())
    by_target, by_due = count_entries(entries, wall_clock_ms())
    total = sum(by_target.values())
    if asked.as_json:
        say_json({"pending": total, "by_target": by_target, "by_due": by_due})
        return
    _say_counts("target", by_target)
    _say_counts("due", by_due)
    say(_are_pending(total))


def _count_at_instances(asked: Instances) -> None:
    answers, silent = asked.ask("/pending")
    counts = Counter[str]()
    for said in answers:
        counts.update(said["by_target"])
    by_target, others = dict(counts.most_common()), sum(said["others"] for said in answers)
    partitions = {number for said in answers for number in said["partitions"]}
    total, twice = counts.total() + others, _repeated(answers)
    missing = _missing(asked, partitions, is_whole=all(map(_is_whole, answers)))
    if asked.as_json:
        said = {"pending": total, "by_target": by_target, "others": others}
        covered = {"partitions": sorted(partitions), "partitions_missing": missing}
        say_json({**said, **covered, "partitions_twice": twice, "silent": silent})
    else:
        _say_counts("target", by_target | ({"(others)": others} if others else {}))
        least = "" if missing == [] and not silent else "At least "
        known = f"{least}{_are_pending(total)} {_covered(partitions)}"
        say(known if partitions else NONE_COVERED)
        _say_repeated(twice)
        _say_missing(asked, missing)
    _refuse_incomplete(missing, silent)


def _are_pending(records: int) -> str:
    return f"{counted(records, 'record')} {'is' if records == 1 else 'are'} pending."


def count_entries(
    entries: Iterable[Delivery | LeftInKafka], now_ms: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Count entries by target, the highest count first. Also count them by remaining time, the
    shortest time first."""
    by_target: Counter[str] = Counter()
    by_due = dict.fromkeys([*SPANS_MS, LATER], 0)
    for due_ms, _offset, target, *_ in entries:
        by_target[target] += 1
        left_ms = due_ms - now_ms
        by_due[next((one for one, most_ms in SPANS_MS.items() if left_ms <= most_ms), LATER)] += 1
    return dict(by_target.most_common()), {span: count for span, count in by_due.items() if count}


def _say_counts(what: str, counts: Mapping[str, int]) -> None:
    if counts:
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        say_table([what, "pending records"], rows)


PAGE_RECORDS: Final = 1_000
LAST: Final = 2**63
COLUMNS: Final[tuple[str, ...]] = ("fires", "due", "target", "id", "origin", "bytes", "why")

Found = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Due(Instances):
    """Options that choose records by the time at which they fire."""

    since_ms: int | None = option(
        "Only records that fire at this time or later: RFC 3339 or epoch ms.", "--from", **TIME
    )
    until_ms: int | None = option("Only records that fire at this time or earlier.", "--to", **TIME)


@dataclass(frozen=True, kw_only=True)
class Listing(Times, Due):
    """Options of the commands that list records."""

    target: str | None = option(
        "Only records for this target, or for targets that match this pattern."
    )
    limit: int = option("Show at most this many records.", default=100, min=1, max=100_000)

    def fits(self, record: Found) -> bool:
        """Return whether the filters accept a record that was found by id or origin."""
        if self.target is not None and not fnmatchcase(record["target"] or "", self.target):
            return False
        fires_ms = record["fires"] if record["fires"] is not None else record["due"]
        if fires_ms is None:
            return self.since_ms is None and self.until_ms is None
        is_late_enough = self.since_ms is None or fires_ms >= self.since_ms
        return is_late_enough and (self.until_ms is None or fires_ms <= self.until_ms)


class Listed(NamedTuple):
    """Pending records that some instances have listed."""

    records: list[Found]
    partitions: set[int]
    has_more: bool = False
    silent: Mapping[str, str] = {}
    is_whole: bool = False
    """Whether all answers are for the whole group and complete."""

    def show(
        self, asked: Instances, sentence: str, missing: list[int] | None, **more: object
    ) -> None:
        """Print the records. Only the JSON output contains `more`. Raises InstanceSilent."""
        if asked.as_json:
            covered = {"partitions": sorted(self.partitions), "partitions_missing": missing}
            say_json({"records": self.records, **covered, "silent": self.silent, **more})
        else:
            if self.records:
                _say_records(self.records)
            for record in self.records:
                _say_body(record)
            say(f"{sentence} {_covered(self.partitions)}")
            _say_missing(asked, missing)
        _refuse_incomplete(missing, self.silent)


def list_pending(
    asked: Listing,
    id_prefix: Annotated[
        str | None, typer.Option(help="Only records whose id begins with this text.")
    ] = None,
) -> None:
    """List the pending records of all instances, in the order in which they fire.

    Exit code 1: an instance did not answer, or it is not known whether all partitions are
    covered."""
    times = {"due_from": asked.since_ms, "due_to": asked.until_ms}
    given = {"target": asked.target, **times, "id_prefix": id_prefix}
    filters = {name: str(value) for name, value in given.items() if value is not None}
    found = _together(asked, lambda address: _list(asked, address, filters))
    records, has_more = sorted(found.records, key=_place), found.has_more
    has_more = has_more or len(records) > asked.limit
    found = found._replace(records=records[: asked.limit])
    more = ". There are more: raise --limit" if has_more else ""
    missing = _missing(asked, found.partitions, is_whole=found.is_whole)
    found.show(asked, f"{counted(len(found.records), 'record')}{more}.", missing, more=has_more)


@dataclass(frozen=True, kw_only=True)
class Wanted(Listing):
    """Options of `find`."""

    ident: str | None = option("The record's id.", "--id", parser=checked_ident)
    origin: Origin | None = option(
        "The ingress record: topic/partition/offset.", parser=checked_origin
    )
    body: bool = flag("With --origin: also show key, value and headers.")


def find(asked: Wanted) -> None:
    """Find pending records by id, origin, target or time, on all instances.

    Exit code 1: an instance did not answer, or it is not known whether all partitions are
    covered."""
    missing: list[int] | None = []
    if asked.origin is not None:
        found = _at_origin(asked, asked.origin, with_body=asked.body)
    elif asked.ident is not None:
        found = _with_id(asked, asked.ident)
        missing = _missing(asked, found.partitions, is_whole=found.is_whole)
    elif asked.target is None and asked.since_ms is None and asked.until_ms is None:
        raise typer.BadParameter("name --id, --origin, --target, --from or --to")
    else:
        list_pending(asked)
        return
    kept = [one for one in found.records if asked.ident is None or one["id"] == asked.ident]
    kept = [one for one in kept if asked.fits(one)]
    found = found._replace(records=kept[: asked.limit])
    found.show(asked, f"{len(kept):,} found." if kept else "No pending record matches.", missing)


def _together(asked: Instances, asking: Callable[[str], Listed]) -> Listed:
    answers, silent = asked.each(asking)
    for one in answers:
        silent |= one.silent
    return Listed(
        [record for one in answers for record in one.records],
        {partition for one in answers for partition in one.partitions},
        any(one.has_more for one in answers),
        silent,
        all(one.is_whole for one in answers),
    )


def _list(asked: Listing, address: str, filters: Mapping[str, str]) -> Listed:
    records, partitions, silent = list[Found](), set[int](), dict[str, str]()
    cursor: str | None = ""
    is_whole = True
    while cursor is not None and len(records) < asked.limit:
        query = {**filters, "limit": str(min(asked.limit - len(records), PAGE_RECORDS))}
        query |= {"cursor": cursor} if cursor else {}
        said = asked.ask_one(address, f"/pending/records?{urlencode(query)}")
        records.extend(said["records"])
        partitions.update(said["partitions"])
        silent |= missing_in(said)
        is_whole = is_whole and _is_whole(said)
        cursor = said["cursor"]
    return Listed(records, partitions, cursor is not None, silent, is_whole)


def _with_id(asked: Instances, ident: str) -> Listed:
    path = f"/records?{urlencode({'id': ident})}"

    def ask_one(address: str) -> Listed:
        found = _found(asked, address, path)
        if found.partitions:
            return found
        said = asked.ask_one(address, "/pending")
        return found._replace(partitions={*said["partitions"]}, is_whole=_is_whole(said))

    return _together(asked, ask_one)


def _at_origin(asked: Instances, origin: Origin, *, with_body: bool) -> Listed:
    path = f"/records/{quote(str(origin))}{'?body=true' if with_body else ''}"
    found = _together(asked, lambda address: _found(asked, address, path))
    if not found.records:
        refuse_silent(found.silent)
        raise NotThere(
            f"{origin} is pending at none of the asked instances.",
            "Check the origin (topic/partition/offset of the ingress), and name every instance "
            "with --admin.",
        )
    return found._replace(partitions={origin.partition})


def _found(asked: Instances, address: str, path: str) -> Listed:
    try:
        said = asked.ask_one(address, path)
    except NotThere:
        return Listed([], set())
    records, partitions = said.get("records", [said]), set(said.get("partitions", ()))
    return Listed(records, partitions, silent=missing_in(said), is_whole=_is_whole(said))


def _place(record: Found) -> tuple[int, int, int]:
    _topic, partition, offset = str(record["origin"]).rsplit("/", 2)
    fires_ms = record["fires"]
    return LAST if fires_ms is None else int(fires_ms), int(partition), int(offset)


def _say_records(records: Iterable[Found]) -> None:
    """Print a table. The column `bytes` is left out for `find --id` and `--origin`, whose answers
    have no sizes."""
    columns, rows = COLUMNS, list(map(_row, records))
    size = COLUMNS.index("bytes")
    if not any(row[size] for row in rows):
        columns = tuple(name for name in COLUMNS if name != "bytes")
        rows = [row[:size] + row[size + 1 :] for row in rows]
    say_table(columns, rows, whole=("origin",))


def _row(record: Found) -> list[str]:
    size_bytes = record.get("bytes")
    attempt = f" {record['attempt']}" if record.get("attempt") else ""
    reason = ""
    if record.get("why") == "requeued":
        why = record.get("reason") or "`trace` shows the reason (the worker has restarted since)"
        reason = f": waits for its next publish attempt: {why}"
    return [
        *("" if ms is None else shown_time(ms) for ms in (record["fires"], record["due"])),
        *(plain(record[name]) for name in ("target", "id", "origin")),
        "" if size_bytes is None else f"{size_bytes:,}",
        plain(record.get("why") or record.get("state")) + attempt + plain(reason),
    ]


def _say_body(record: Found) -> None:
    parts = [(name, record[name]) for name in ("key", "value") if record.get(name) is not None]
    parts += [(one["name"], one["value"] or {}) for one in record.get("headers", [])]
    for name, part in parts:
        say(f"{plain(name)}: {plain(part.get('text', part.get('base64')))}")


PURGE: Final[dict[str, Any]] = {"method": "POST", "within_s": CHANGED_WITHIN_S}
REMOVED: Final = "`pending` counts them until the proxy has removed them."
PURGE_NOT_YET: Final = (
    "The purge is written. Some partitions have not read it yet. The purge cancels their "
    "records when they read it. Look whether the proxy is behind (/readyz) or the ingest is "
    "paused (`pauses`)."
)


@dataclass(frozen=True, kw_only=True)
class Purged(Due):
    """Options of `purge`."""

    targets: str = argument("A target, or a pattern like 'orders-*'.", parser=checked_pattern)
    dry_run: bool = flag("Count the records, without purging them.")
    yes: bool = flag("Purge without asking for confirmation.")


def purge(asked: Purged) -> None:
    """Cancel all pending records of these targets, in all partitions.

    Each record ends with the outcome `cancelled`. Undecided half messages stay. Each instance named
    with --admin counts its own records first. The purge applies to all instances. Exit code 1: some
    partitions have not read the purge yet. With --dry-run: an instance did not answer."""
    if asked.as_json and not (asked.dry_run or asked.yes):
        raise typer.BadParameter("--json does not ask for confirmation: give --yes or --dry-run")
    body = {"targets": asked.targets, "due_from": asked.since_ms, "due_to": asked.until_ms}
    done = _count_purge(asked, body)
    if not asked.as_json:
        _say_purge(asked, done)
    if not (asked.dry_run or asked.yes):
        typer.confirm("Purge these records in all partitions?", abort=True)
    if not asked.dry_run:
        answering = next(one for one in asked.addresses if one not in done["silent"])
        said = asked.ask_one(answering, "/purges", body={**body, "dry_run": False}, **PURGE)
        done |= {name: said[name] for name in ("dry_run", "purges", "applied")}
    if asked.as_json:
        say_json(done)
    elif asked.dry_run:
        say("Nothing was changed.")
    elif not done["applied"]:
        say(PURGE_NOT_YET)
    else:
        purged = f"purged: the pending records for {asked.targets} will not be delivered: "
        say(f"{purged}{', '.join(done['purges'])}")
        say(REMOVED)
    if asked.dry_run:
        refuse_silent(done["silent"])
    raise typer.Exit(0 if asked.dry_run or done["applied"] else 1)


def _count_purge(asked: Instances, body: Mapping[str, Any]) -> Answer:
    answers, silent = asked.ask("/purges", body={**body, "dry_run": True}, **PURGE)
    partitions = sorted({number for said in answers for number in said["partitions"]})
    return answers[0] | {
        "partitions_twice": _repeated(answers),
        "records": sum(said["records"] for said in answers),
        "counted_all": all(said["counted_all"] for said in answers),
        "partitions": partitions,
        "partitions_missing": missing_partitions(asked.settings, partitions),
        "silent": silent,
    }


def _say_purge(asked: Instances, done: Answer) -> None:
    more = "" if done["counted_all"] else "at least "
    since = "" if done["due_from"] is None else f" from {shown_time(done['due_from'])}"
    until = "" if done["due_to"] is None else f" to {shown_time(done['due_to'])}"
    due = f", due{since}{until}," if since or until else ""
    are = "is" if done["records"] == 1 else "are"
    records = f"{more}{counted(done['records'], 'record')} for {done['targets']}"
    say(f"{records}{due} {are} pending. {_covered(done['partitions'])}")
    _say_repeated(done["partitions_twice"])
    say_silent(done["silent"])
    _say_missing(asked, done["partitions_missing"])


MOST_FAILURES: Final = 60
"""A move repeats its calls at most this many times. The repeats last longer than the takeover of a
killed instance's partitions."""
AGAIN_S: Final = 1.0
MOVED: Final = ("replaced", "requeued")
"""Outcomes of records that were moved."""


@dataclass(frozen=True, kw_only=True)
class Bulk(Due):
    """Options of `move`."""

    targets: str = argument("A target, or a pattern like 'orders-*'.", parser=checked_pattern)
    id_prefix: str = option("Only records whose id begins with this text.", default="")
    at: str | None = option("Deliver at this time: now, RFC 3339 with a zone, or epoch ms.")
    later: str | None = option(
        "Add this to the due of each record: 30s, 5m, 2h ...", metavar="DURATION"
    )
    dry_run: bool = flag("Count the records, without moving them.")
    yes: bool = flag("Move without asking for confirmation.")


def move(asked: Bulk) -> None:
    """Move the pending records of these targets to another time: --at or --later.

    At most 10,000 records are moved. Only records that were counted before are moved, each once. If
    --at was interrupted, run it again. After an interrupted --later first look at `pending list`,
    because a second run moves moved records again. Exit code 1: an instance did not answer, or a
    counted record was not moved, for example because it was delivered before."""
    if asked.as_json and not (asked.dry_run or asked.yes):
        raise typer.BadParameter("--json does not ask for confirmation: give --yes or --dry-run")
    if (asked.at is None) is (asked.later is None):
        raise typer.BadParameter("give either --at or --later")
    to = {"later": asked.later} if asked.at is None else {"deliver_at": asked.at}
    times = {"due_from": asked.since_ms, "due_to": asked.until_ms}
    body = {"targets": asked.targets, "id_prefix": asked.id_prefix, **times, **to}
    plans, silent = asked.each(lambda one: (one, _move(asked, one, {**body, "dry_run": True})))
    counts = [plan for _, plan in plans]
    for plan in counts:
        silent |= missing_in(plan)
    done = _added(counts) | {"dry_run": True, "silent": silent}
    is_whole = not silent and not done["cut"]
    if not asked.as_json:
        _say_moves(done, asked.targets)
    if not (asked.dry_run or asked.yes) and done["records"]:
        typer.confirm("Move these records?", abort=True)
    if not asked.dry_run:
        moved = list[Answer]()
        for address, plan in plans:
            real = {**body, "dry_run": False}
            moved += _each_move(asked, address, real, plan["confirm"])
            silent |= missing_in(moved[-1]) if moved else {}
        is_whole = is_whole and sum(one["records"] for one in moved) == done["records"]
        done = _added(moved) | {"dry_run": False, "cut": done["cut"], "silent": silent}
    if asked.as_json:
        say_json(done)
    elif asked.dry_run:
        say("Nothing was changed.")
    else:
        say(f"{counted(done['records'], 'record')} moved. {_reasons(done)}".rstrip())
        say_silent(silent)
    raise typer.Exit(0 if is_whole else 1)


def _move(asked: Bulk, address: str, body: Mapping[str, Any]) -> Answer:
    given = {name: value for name, value in body.items() if value is not None}
    return asked.ask_one(address, "/moves", body=given, **PURGE)


def _each_move(
    asked: Bulk, address: str, body: Mapping[str, Any], confirm: str | None
) -> Iterator[Answer]:
    """Yield the answers to all calls of a move. Repeat a call that fails or does nothing. A
    repeat is harmless, because a moved record is not moved again."""
    failures = 0
    while confirm is not None:
        try:
            said = _move(asked, address, {**body, "confirm": confirm})
        except ProxyUnreachable:
            if failures >= MOST_FAILURES:
                raise
        else:
            yield said
            if said["confirm"] != confirm:
                confirm = said["confirm"]
                continue
            if failures >= MOST_FAILURES:
                return
        failures += 1
        time.sleep(AGAIN_S)


def _added(answers: Collection[Answer]) -> Answer:
    sums: dict[str, Counter[str]] = {"outcomes": Counter(), "left_out": Counter()}
    for name, counts in sums.items():
        for said in answers:
            counts.update(said[name])
    return {
        "records": sum(said["records"] for said in answers),
        "cut": any(said["cut"] for said in answers),
        "first_due": min((s["first_due"] for s in answers if s["records"]), default=None),
        "last_due": max((s["last_due"] for s in answers if s["records"]), default=None),
        "partitions": sorted({number for said in answers for number in said["partitions"]}),
        **{name: dict(counts) for name, counts in sums.items()},
    }


def _reasons(done: Answer) -> str:
    others = Counter(done["left_out"]) + Counter(
        {name: n for name, n in done["outcomes"].items() if name not in MOVED}
    )
    return " ".join(f"Not moved ({plain(why)}): {count:,}." for why, count in others.items())


def _say_moves(done: Answer, targets: str) -> None:
    dues = ""
    if done["records"]:
        dues = f", due from {shown_time(done['first_due'])} to {shown_time(done['last_due'])}"
    say(f"{counted(done['records'], 'record')} for {targets} can be moved{dues}.")
    if done["cut"]:
        say("There are more records, which fire later. Run the command again for these.")
    if reasons := _reasons(done):
        say(reasons)
    say(_covered(done["partitions"]))
    say_silent(done["silent"])


WAIT: Final = "10s"
TOO_LATE: Final = "too late: the record has already ended. Nothing was changed"
NOT_MOVED_YET: Final = (
    "written as {origin}; not applied yet. Look whether the proxy is behind (/readyz)"
)


@dataclass(frozen=True, kw_only=True)
class Moved(Instance):
    """Options of `reschedule`."""

    origin: Origin = argument(
        "The record's origin, as `pending list` shows it: topic/partition/offset.",
        parser=checked_origin,
    )
    at: str | None = option("Deliver at this time: RFC 3339 with a zone, or epoch ms.")
    delay_ms: int | None = option(
        "Deliver after this time from now: 30s, 5m, PT1H ...",
        "--delay",
        parser=checked_delay_ms,
        metavar="DURATION",
    )


def reschedule(asked: Moved) -> None:
    """Move a pending record to another time: --at or --delay.

    Exit code 1: the record had ended before, or the result is not known yet."""
    if (asked.at is None) is (asked.delay_ms is None):
        raise typer.BadParameter("give either --at or --delay")
    now_ms = wall_clock_ms()
    deliver_at_ms = (
        now_ms + (asked.delay_ms or 0) if asked.at is None else checked_instant_ms(asked.at)
    )
    if deliver_at_ms < now_ms - LONG_PAST_MS:
        raise typer.BadParameter(
            f"{asked.at} is {shown_time(deliver_at_ms)}. Write epoch times in milliseconds. To "
            "deliver at once, write --delay 0"
        )
    path, body = f"/records/{quote(str(asked.origin))}?wait={WAIT}", {"deliver_at": deliver_at_ms}
    done = asked.ask(path, method="PATCH", body=body, within_s=CHANGED_WITHIN_S)
    is_moved = done["outcome"] not in (None, MISSED)
    if asked.as_json:
        say_json(done)
    elif is_moved:
        say(f"moved: due {shown_time(deliver_at_ms)}, now {done['origin']}")
    else:
        say(TOO_LATE if done["outcome"] == MISSED else NOT_MOVED_YET.format(**done))
    raise typer.Exit(0 if is_moved else 1)
