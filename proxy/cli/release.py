"""`pause`, `resume`, `pauses`, `limits` and `skip`: changes at run time, for all instances.
`changes` lists them."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Final
from urllib.parse import quote

import typer
from pydantic import ValidationError

from proxy.cli.admin_port import Answer, Instance, Instances, Replies, say_silent
from proxy.cli.terminal import (
    Times,
    argument,
    checked_pattern,
    counted,
    flag,
    option,
    say,
    say_json,
    say_table,
    shown_time,
)
from proxy.config.settings import MOST_PER_SECOND, OverdueLimit
from proxy.errors import ProxyError
from proxy.protocol.times import shown_delay

CHANGED_WITHIN_S: Final = 30.0
SKIPPED_WITHIN_S: Final = 120.0
"""A skip may take this long, because the search for the end of a large batch takes many
connections."""
PATHS: Final = {"--ingest": ("/pauses", "/ingest/paused"), "--worker": ("/limits", "/limits")}
RUN_TIME = "run-time"
SETTINGS = "settings"


class NotPaused(ProxyError):
    """The targets to resume are not paused."""


class NotLimited(ProxyError):
    """No limit was set at run time."""


NOT_YET: Final = "The change is written, but some instances have not applied it yet."


@dataclass(frozen=True, kw_only=True)
class AllInstances(Instances):
    """Options that name instances. A change by any instance applies to all instances.

    Each named instance is asked whether it has applied the change."""

    admin: list[str] | None = option(
        "host:port or URL of an admin port. One instance is enough. Each named instance is "
        "asked whether it has applied the change. Repeatable."
    )

    def ask_one(self, address: str, path: str, **how: Any) -> Answer:
        return super().ask_one(address, path, **how, within_s=CHANGED_WITHIN_S)

    def change(self, method: str, path: str, done: str, body: object = None) -> None:
        """Ask for a change and print `done`. Raises typer.Exit."""
        answers, silent = self.ask(path, method=method, body=body)
        is_everywhere = not silent and all(answer["in_force"] for answer in answers)
        if self.as_json:
            say_json({**answers[0], "in_force": is_everywhere, "silent": silent})
        else:
            late = "" if is_everywhere else f" {NOT_YET}"
            say(f"{done}{late}")
            say_silent(silent)
        raise typer.Exit(0 if is_everywhere else 1)


@dataclass(frozen=True, kw_only=True)
class Change(AllInstances):
    """Options that name the targets of a change. A flag can replace the targets."""

    targets: str | None = argument(
        "A target, or a pattern like 'orders-*'.",
        default=None,
        parser=checked_pattern,
        show_default=False,
    )

    def path(self, whole: str, *, is_whole: bool) -> str:
        """Return the path of the call. Raises a usage error.

        `whole` is the flag that the command has instead of targets."""
        if is_whole == (self.targets is not None):
            raise typer.BadParameter(f"give either a target (or pattern) or {whole}")
        of_targets, of_whole = PATHS[whole]
        return of_whole if self.targets is None else f"{of_targets}/{quote(self.targets, safe='')}"


@dataclass(frozen=True, kw_only=True)
class Paused(Change):
    """Options of `pause`."""

    ingest: bool = flag("Pause or resume the reading of the ingress topic, instead of a target.")


def pause(asked: Paused) -> None:
    """Pause delivery to some targets, or with --ingest the reading of new records.

    The pause applies to all instances until `resume`. Exit code 1: an instance has not noticed it
    yet."""
    done = "The ingest is paused." if asked.ingest else f"{asked.targets} is paused."
    asked.change("PUT", asked.path("--ingest", is_whole=asked.ingest), done)


@dataclass(frozen=True, kw_only=True)
class Resumed(Paused):
    """Options of `resume`."""

    per_second: int | None = option(
        "Deliver at most this many paused records per second, in all partitions together.",
        min=1,
        max=MOST_PER_SECOND,
    )


def resume(asked: Resumed) -> None:
    """End a pause. Name the same pattern as for `pause`, or --ingest.

    Exit code 1: nothing was paused under this name, or an instance has not noticed the change
    yet."""
    path = asked.path("--ingest", is_whole=asked.ingest)
    if asked.ingest and asked.per_second is not None:
        raise typer.BadParameter("--per-second is for targets, not for --ingest")
    if asked.targets is not None and asked.per_second is None:
        paused, rates = _in_force(asked.ask("/pauses"))
        # A mistyped pattern would leave the targets paused.
        if asked.targets not in {*paused, *rates}:
            named = f"Give the same pattern as for `pause`. Paused: {', '.join(paused)}."
            raise NotPaused(
                f"{asked.targets} is neither paused nor released at a rate.",
                named if paused else "Nothing is paused.",
            )
    rate = "" if asked.per_second is None else f"?per_second={asked.per_second}"
    done = "The ingest is resumed." if asked.ingest else f"{asked.targets} is resumed."
    asked.change("DELETE", f"{path}{rate}", done)


def pauses(asked: AllInstances) -> None:
    """List paused targets, targets released at a rate, and whether the ingest is paused."""
    replies = asked.ask("/pauses")
    ingest = asked.ask("/ingest").answers
    paused, rates = _in_force(replies)
    is_ingest_paused = any(answer["paused"] for answer in ingest)
    unread = sum(answer["unread"] for answer in ingest)
    if asked.as_json:
        about_ingest = {"paused": is_ingest_paused, "unread": unread}
        shown = {"paused": paused, "release_rates": rates, "ingest": about_ingest}
        say_json({**shown, "silent": replies.silent})
        return
    for pattern in paused:
        say(f"paused: {pattern}")
    for pattern, per_second in sorted(rates.items()):
        say(f"resumed at {per_second:,} records a second: {pattern}")
    if is_ingest_paused:
        say(f"the ingest is paused: {unread:,} ingress records are unread")
    if not (paused or rates or is_ingest_paused):
        say("Nothing is paused.")
    say_silent(replies.silent)


def _in_force(replies: Replies[Answer]) -> tuple[list[str], dict[str, int]]:
    paused = {pattern for answer in replies.answers for pattern in answer["paused"]}
    rates = {name: n for answer in replies.answers for name, n in answer["release_rates"].items()}
    return sorted(paused), rates


def limits(context: typer.Context, asked: AllInstances) -> None:
    """List the rate caps and overdue rules in force. For a target, the first pattern that matches
    applies.

    `limits set` and `limits clear` change them at run time, for all instances."""
    if context.invoked_subcommand is not None:
        return
    answers, silent = asked.ask("/limits")
    found: list[Answer] = []
    for answer in answers:
        found += [one for one in answer["limits"] if one not in found]
    found.sort(key=lambda one: one["source"] == SETTINGS)
    bounds = [(one["max_per_second"], one["max_per_second_source"]) for one in answers]
    workers = [{"max_per_second": n, "source": source} for n, source in dict.fromkeys(bounds)]
    if asked.as_json:
        say_json({**answers[0], "limits": found, "each_worker": workers, "silent": silent})
        return
    rows = [
        ["(each worker)", f"{one['max_per_second']:,}", "", one["source"]]
        for one in workers
        if one["max_per_second"] is not None
    ]
    for one in found:
        rule, per_second = one["overdue"], one["per_second"]
        cap = "" if per_second is None else f"{per_second:,}"
        overdue = "" if rule is None else f"{rule['older_than']}:{rule['action']}"
        rows.append([one["pattern"], cap, overdue, one["source"]])
    if rows:
        say_table(["targets", "per second", "overdue", "from"], rows)
    else:
        say("No target has a limit.")
    say_silent(silent)


@dataclass(frozen=True, kw_only=True)
class Limited(Change):
    """Options of `limits clear`."""

    worker: bool = flag("The limit of all records of each worker, instead of a target's limit.")


@dataclass(frozen=True, kw_only=True)
class NewLimit(Limited):
    """Options of `limits set`."""

    per_second: int | None = option(
        "Deliver at most this many records a second, for each target and worker.",
        min=1,
        max=MOST_PER_SECOND,
    )
    overdue: str | None = option(
        "Action for records that are overdue for longer than AGE: 1h:drop, 1h:dead-letter, "
        "1h:deliver.",
        metavar="AGE:ACTION",
    )


def set_limit(asked: NewLimit) -> None:
    """Set a rate cap, an overdue rule, or both.

    The new limits replace earlier run-time limits of the same pattern. Exit code 1: an instance has
    not noticed the change yet."""
    path = asked.path("--worker", is_whole=asked.worker)
    if asked.worker and (asked.per_second is None or asked.overdue is not None):
        raise typer.BadParameter("--worker needs --per-second; --overdue is for targets")
    if asked.per_second is None and asked.overdue is None:
        raise typer.BadParameter("give --per-second, --overdue, or both")
    body: dict[str, Any] = {} if asked.per_second is None else {"per_second": asked.per_second}
    if asked.overdue is not None:
        body["overdue"] = _rule(asked.overdue)
    asked.change("PUT", path, f"{asked.targets or 'Each worker'} is limited.", body)


def clear_limit(asked: Limited) -> None:
    """Remove a limit that was set at run time. The limits of the settings apply again.

    Exit code 1: no limit was set, or an instance has not noticed the change yet."""
    path, targets = asked.path("--worker", is_whole=asked.worker), asked.targets
    answers = asked.ask("/limits").answers
    if targets is None:
        is_set = any(one["max_per_second_source"] == RUN_TIME for one in answers)
    else:
        known = [one for answer in answers for one in answer["limits"]]
        is_set = (targets, RUN_TIME) in [(one["pattern"], one["source"]) for one in known]
    if not is_set:
        raise NotLimited(
            f"No limit was set at run time for {targets or 'each worker'}.",
            "Give a pattern as `limits` lists it." if targets else "",
        )
    whose = targets or "A worker as a whole"
    asked.change("DELETE", path, f"{whose} has no run-time limit any more.")


def _rule(text: str) -> Mapping[str, str]:
    older_than, _, action = text.partition(":")
    try:
        rule = OverdueLimit.model_validate({"older_than": older_than, "action": action})
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(
            f"{text!r} is not a rule: write age:action, like 1h:drop. Actions are drop, "
            f"dead-letter and deliver ({why})"
        ) from None
    return {"older_than": shown_delay(rule.older_than_ms), "action": rule.action}


@dataclass(frozen=True, kw_only=True)
class Skipped(Instance):
    """Options of `skip`."""

    partition: int = option("The ingress partition.", default=MISSING, min=0)
    offset: int = option(
        "The offset that cannot be read. The log and /readyz name it.", default=MISSING, min=0
    )
    dry_run: bool = flag("Show what would be skipped, without a change.")


def skip(asked: Skipped) -> None:
    """Skip a record batch of the ingress that cannot be read.

    Each record of the batch becomes a dead letter without content (`record-unreadable`). Readable
    records are never skipped. Exit code 1: the instance has not continued yet."""
    body = {"partition": asked.partition, "offset": asked.offset, "dry_run": asked.dry_run}
    done = asked.ask("/skips", method="POST", body=body, within_s=SKIPPED_WITHIN_S)
    if asked.as_json:
        say_json(done)
    else:
        does = "would skip" if asked.dry_run else "skipped"
        is_late = not (asked.dry_run or done["in_force"])
        later = "; written, but the proxy has not continued yet" if is_late else ""
        say(
            f"{does} offsets {done['offset']} up to, not including, {done['end']} of partition "
            f"{done['partition']}{later} ({done['why']})"
        )
    raise typer.Exit(0 if done["in_force"] or asked.dry_run else 1)


RESULT_SHOWN: Final = 100


@dataclass(frozen=True, kw_only=True)
class Recorded(Times, Instance):
    """Options of `changes`."""

    limit: int = option("Show at most this many changes.", default=50, min=1, max=1_000)


def changes(asked: Recorded) -> None:
    """List the changes that callers of the admin port made or tried to make, the newest first.

    All instances give the same list, so the command asks only one."""
    done = asked.ask(f"/changes?limit={asked.limit}")
    if asked.as_json:
        say_json(done)
        return
    if done["changes"]:
        columns = ("time", "caller", "role", "address", "status", "call", "result")
        say_table(columns, map(_changed, done["changes"]))
    say(f"{counted(len(done['changes']), 'change')}.")


def _changed(one: Answer) -> list[str]:
    result, left_out = str(one["result"]), int(one["left_out"])
    cut = result if len(result) <= RESULT_SHOWN else f"{result[:RESULT_SHOWN]}…"
    before = f" ({counted(left_out, 'refused change')} before it not listed)" if left_out else ""
    return [
        shown_time(one["at"]),
        *(str(one[name]) for name in ("caller", "role", "address", "status")),
        f"{one['call']} {one['body']}".rstrip(),
        f"{cut}{before}",
    ]
