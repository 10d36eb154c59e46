"""`pending`: list, count, show, cancel, purge and reschedule what is pending."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import typer

from proxy.cli.admin_port import NotThere, address_of, addresses_of, ask, ask_each, too_old
from proxy.cli.local_shards import local_shards
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
from proxy.plain_text import plain
from proxy.protocol.body import Delivery, LeftInKafka
from proxy.protocol.outcomes import MISSED
from proxy.telemetry.collectors import LONG_PAST_MS

# Whether what instances say together is all: the partitions they speak for, and who is silent.

BROKER_LIMIT_S: Final = 2.0


class InstanceSilent(ProxyError):
    """One of the instances has not answered: what was shown is not all."""


def missing_partitions(settings: Settings, covered: Collection[int]) -> list[int] | None:
    """Partitions of the ingress that no instance has answered for; None where the broker cannot be
    asked how many there are."""
    try:
        connection = Connection(settings)
        connection.limit_s = BROKER_LIMIT_S
        count = len(connection.describe_topic(settings.topics.ingress).partitions)
    except ProxyError:
        return None
    return sorted(set(range(count)).difference(covered))


def shown_partitions(covered: Collection[int]) -> str:
    """Their numbers, for a person."""
    return ", ".join(map(str, sorted(covered))) or "none"


def repeated(covered_by_each: Iterable[Iterable[int]]) -> list[int]:
    """Partitions of which more than one instance has told: one was named twice, or a partition has
    just changed hands."""
    times = Counter(number for covered in covered_by_each for number in covered)
    return sorted(number for number, count in times.items() if count > 1)


def say_repeated(numbers: Collection[int]) -> None:
    """What a sum has in it more than once."""
    if numbers:
        twice = f"Counted more than once: {shown_partitions(numbers)}."
        say(f"{twice} Is an instance named twice, or does one just come or go?")


def say_silent(silent: Mapping[str, str]) -> None:
    """`silent`: address -> why it has not answered."""
    for address, why in silent.items():
        say(f"{address}: {why}")


def say_missing(missing: list[int] | None) -> None:
    """What of the ingress nobody has spoken for."""
    if missing is None:
        say("Whether that is all of the ingress is not known: the broker does not answer.")
    elif missing:
        say(f"Not covered: {shown_partitions(missing)}. Name every instance with --admin.")


def refuse_silent(silent: Mapping[str, str]) -> None:
    """Raises InstanceSilent if there is any. `silent`: address -> why it has not answered."""
    if silent:
        raise InstanceSilent("Not every instance has answered. " + " ".join(silent.values()))


# What waits, as all instances of a proxy say it together.

PAGE_RECORDS: Final = 1_000
LAST: Final = 2**63

Found = Mapping[str, Any]
"""A record as the API shows it."""


class Answers(NamedTuple):
    """records: in order; partitions: those that were asked about; silent: address -> why it has not
    answered; has_more: whether there are records beyond these."""

    records: list[Found]
    partitions: set[int]
    silent: dict[str, str]
    has_more: bool = False


class Counts(NamedTuple):
    """by_target: records that wait for it; others: for targets that were not counted by name.

    Those of the partitions `twice` are in it more than once."""

    by_target: dict[str, int]
    others: int
    partitions: set[int]
    twice: list[int]
    silent: dict[str, str]


class WaitingRecords:
    """Of the instances at these addresses. All raise ProxyError where none of them answers."""

    def __init__(self, addresses: Sequence[str], token: str | None) -> None:
        self._addresses, self._token = addresses, token

    def listed(self, filters: Mapping[str, str], limit: int) -> Answers:
        """The first `limit` records that wait, in the order of firing."""
        answers = self._together(lambda address: self._list(address, filters, limit))
        has_more = answers.has_more or len(answers.records) > limit
        records = sorted(answers.records, key=_place)[:limit]
        return answers._replace(records=records, has_more=has_more)

    def with_id(self, ident: str) -> Answers:
        """What waits with this id."""
        path = f"/records?{urlencode({'id': ident})}"

        def with_partitions(address: str) -> Answers:
            said = self._found(address, path)
            return said if said.partitions else said._replace(partitions=self._served(address))

        return self._together(with_partitions)

    def at_origin(self, origin: Origin, *, with_body: bool) -> Answers:
        """What has become of this ingress record, and what it holds."""
        query = "?body=true" if with_body else ""
        said = self._together(lambda at: self._found(at, f"/records/{quote(str(origin))}{query}"))
        return said._replace(partitions={origin.partition} if said.records else set())

    def counted(self) -> Counts:
        """How many wait for each target, those with most first."""
        replies, silent = ask_each(self._addresses, self._counts)
        by_target = Counter[str]()
        for said in replies:
            by_target.update(said["by_target"])
        others = sum(said["others"] for said in replies)
        covered = [said["partitions"] for said in replies]
        partitions = {number for numbers in covered for number in numbers}
        return Counts(dict(by_target.most_common()), others, partitions, repeated(covered), silent)

    def _together(self, asking: Callable[[str], Answers]) -> Answers:
        answers, silent = ask_each(self._addresses, asking)
        return Answers(
            [record for one in answers for record in one.records],
            {partition for one in answers for partition in one.partitions},
            silent,
            any(one.has_more for one in answers),
        )

    def _found(self, address: str, path: str) -> Answers:
        try:
            said = ask(address, path, self._token)
        except NotThere:
            return Answers([], set(), {})
        partitions = set(said.get("partitions", ()))
        return Answers(said.get("records", [said]), partitions, {})

    def _counts(self, address: str) -> dict[str, Any]:
        """Raises ProxyUnreachable for a proxy that does not say of which partitions."""
        said = ask(address, "/pending", self._token)
        if "partitions" not in said:
            raise too_old(address)
        return said

    def _served(self, address: str) -> set[int]:
        return set(self._counts(address)["partitions"])

    def _list(self, address: str, filters: Mapping[str, str], limit: int) -> Answers:
        """The first records of one instance."""
        records, partitions = list[Found](), set[int]()
        cursor: str | None = ""
        while cursor is not None and len(records) < limit:
            query = {**filters, "limit": str(min(limit - len(records), PAGE_RECORDS))}
            query |= {"cursor": cursor} if cursor else {}
            said = ask(address, f"/pending/records?{urlencode(query)}", self._token)
            records.extend(said["records"])
            partitions.update(said["partitions"])
            cursor = said["cursor"]
        return Answers(records, partitions, {}, cursor is not None)


def _place(record: Found) -> tuple[int, int, int]:
    """(fires, partition, offset); what does not fire comes last."""
    _topic, partition, offset = str(record["origin"]).rsplit("/", 2)
    fires_ms = record["fires"]
    return LAST if fires_ms is None else int(fires_ms), int(partition), int(offset)


# `pending`: how many wait, by target from the running proxies, or by due time from the local
# data.

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
    _show_counts("target", by_target)
    _show_counts("due", by_due)
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
        _show_counts("target", counts.by_target | others)
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


def _show_counts(what: str, counts: Mapping[str, int]) -> None:
    if counts:
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        say_table([what, "records waiting"], rows)


def _span(left_ms: int) -> str:
    return next((span for span, length_ms in SPANS_MS.items() if left_ms <= length_ms), LATER)


# `purge`: nothing that waits for some targets is delivered.

ANSWER_WITHIN_S: Final = 90.0
PURGE_NOT_YET: Final = (
    "The purge is written, and counts as soon as each partition has read it; not all have yet: is "
    "the proxy behind (see /readyz), or is taking in paused (see `pauses`)?"
)

Said = dict[str, Any]
"""What the API answers to a purge, or to its count."""


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
    addresses, token = addresses_of(settings.admin, admin), settings.admin.token
    asked = {"targets": checked_pattern(targets), "due_from": _ms(since), "due_to": _ms(until)}

    def ask_to_purge(address: str, *, is_dry: bool) -> Said:
        how = {"method": "POST", "body": {**asked, "dry_run": is_dry}, "within_s": ANSWER_WITHIN_S}
        return ask(address, "/purges", token, **how)

    replies, silent = ask_each(addresses, lambda address: ask_to_purge(address, is_dry=True))
    counted = _together(replies)
    missing = missing_partitions(settings, counted["partitions"])
    if not as_json:
        say(f"{_shown(counted)}.")
        say_repeated(counted["partitions_twice"])
        say_silent(silent)
        say_missing(missing)
    if not (dry_run or yes):
        typer.confirm("Purge it, in all partitions?", abort=True)
    done = counted | {"partitions_missing": missing, "silent": silent}
    if not dry_run:
        answering = next(address for address in addresses if address not in silent)
        said = ask_to_purge(answering, is_dry=False)
        done |= {name: said[name] for name in ("dry_run", "purges", "applied")}
    _tell(done, as_json=as_json)


def _tell(done: Mapping[str, Any], *, as_json: bool) -> None:
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


def _together(replies: Sequence[Said]) -> Said:
    covered = [said["partitions"] for said in replies]
    partitions = {number for numbers in covered for number in numbers}
    return replies[0] | {
        "partitions_twice": repeated(covered),
        "records": sum(said["records"] for said in replies),
        "counted_all": all(said["counted_all"] for said in replies),
        "partitions": sorted(partitions),
    }


def _shown(waiting: Said) -> str:
    more = "" if waiting["counted_all"] else "at least "
    since = "" if waiting["due_from"] is None else f" from {shown_time(waiting['due_from'])}"
    until = "" if waiting["due_to"] is None else f" to {shown_time(waiting['due_to'])}"
    due = f", due{since}{until}," if since or until else ""
    records = waiting["records"]
    wait = "waits" if records == 1 else "wait"
    shown = f"{more}{counted(records, 'record')} for {waiting['targets']}{due} {wait}"
    return f"{shown}. Partitions covered: {shown_partitions(waiting['partitions'])}"


def _ms(text: str | None) -> int | None:
    return None if text is None else checked_instant_ms(text)


# `reschedule`: a record that waits is delivered at another time.

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
    settings = settings_for(config)
    done = ask(
        admin or address_of(settings.admin),
        f"/records/{quote(str(place))}?wait={WAIT}",
        settings.admin.token,
        method="PATCH",
        body={"deliver_at": deliver_at_ms},
        within_s=ANSWER_WITHIN_S,
    )
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


# `pending list` and `find`: records that wait, one by one.

COLUMNS = ("fires", "due", "target", "id", "origin", "bytes", "why")

Target = Annotated[str | None, typer.Option(help="Only those for this target, or pattern.")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Only those that fire then or later: RFC 3339, epoch ms."),
]
To = Annotated[str | None, typer.Option("--to", help="Only those that fire by then.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="The first so many.")]


def list_waiting(
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
    answers = _records(settings, admin).listed(filters, limit)
    missing = missing_partitions(settings, answers.partitions)
    if as_json:
        say_json(_json(answers) | {"partitions_missing": missing, "more": answers.has_more})
    else:
        _show(answers.records)
        more = "; there are more, see --limit" if answers.has_more else ""
        covered = shown_partitions(answers.partitions)
        say(f"{counted(len(answers.records), 'record')}{more}. Partitions covered: {covered}.")
        say_missing(missing)
    refuse_silent(answers.silent)


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
        list_waiting(target, since, until, None, limit, admin, config, as_json, utc)
        return
    settings = settings_for(config)
    waiting = _records(settings, admin)
    missing: list[int] | None = []
    since_ms, until_ms = _instant_ms(since), _instant_ms(until)
    if origin is not None:
        answers = waiting.at_origin(checked_origin(origin), with_body=body)
        _refuse_unknown(answers, origin)
        kept = [one for one in answers.records if ident is None or one["id"] == ident]
    else:
        answers = waiting.with_id(checked_ident(ident or ""))
        missing = missing_partitions(settings, answers.partitions)
        kept = answers.records
    kept = [one for one in kept if _fits(one, target, since_ms, until_ms)]
    answers = answers._replace(records=kept[:limit])
    if as_json:
        say_json(_json(answers) | {"partitions_missing": missing})
    else:
        _show(answers.records)
        found = f"{len(kept):,} found." if kept else "Nothing waits so."
        say(f"{found} Partitions covered: {shown_partitions(answers.partitions)}.")
        say_missing(missing)
    refuse_silent(answers.silent)


def _records(settings: Settings, admin: Sequence[str] | None) -> WaitingRecords:
    return WaitingRecords(addresses_of(settings.admin, admin), settings.admin.token)


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


def _json(answers: Answers) -> dict[str, Any]:
    return {
        "records": answers.records,
        "partitions": sorted(answers.partitions),
        "silent": answers.silent,
    }


def _show(records: Iterable[Found]) -> None:
    rows = [_row(record) for record in records]
    if rows:
        say_table(COLUMNS, rows, whole=("origin",))
    for record in records:
        for name in ("key", "value"):
            if isinstance(part := record.get(name), dict):
                say(f"{name}: {plain(part.get('text', part.get('base64')))}")
        for header in record.get("headers", []):
            part = header["value"] or {}
            say(f"{plain(header['name'])}: {plain(part.get('text', part.get('base64')))}")


def _row(record: Found) -> list[str]:
    size_bytes = record.get("bytes")
    attempt = f" {record['attempt']}" if record.get("attempt") else ""
    reason = f": waits for a retry because {record['reason']}" if record.get("reason") else ""
    return [
        _time(record["fires"]),
        _time(record["due"]),
        plain(record["target"]),
        plain(record["id"]),
        plain(record["origin"]),
        "" if size_bytes is None else f"{size_bytes:,}",
        plain(record.get("why") or record.get("state")) + attempt + plain(reason),
    ]


def _time(epoch_ms: int | None) -> str:
    return "" if epoch_ms is None else shown_time(epoch_ms)


def _refuse_unknown(answers: Answers, origin: str) -> None:
    if not answers.records:
        refuse_silent(answers.silent)
        raise NotThere(
            f"None of the instances asked knows {origin}.",
            "Name it as topic/partition/offset of the ingress, and every instance with --admin.",
        )
