"""`pending list` and `find`: records that wait, one by one."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from proxy.cli.admin_port import NotThere, addresses_of
from proxy.cli.terminal.options import (
    AsJson,
    Config,
    EachAdmin,
    Utc,
    checked_ident,
    checked_instant_ms,
    checked_origin,
    settings_for,
)
from proxy.cli.terminal.output import (
    counted,
    say,
    say_json,
    say_table,
    show_utc,
    shown_time,
)
from proxy.cli.waiting.coverage import (
    missing_partitions,
    refuse_silent,
    say_missing,
    shown_partitions,
)
from proxy.cli.waiting.waiting_records import Answers, Found, WaitingRecords
from proxy.config.settings import Settings
from proxy.plain_text import plain

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
