"""The commands `pause`, `resume`, `pauses`, `limits` and `skip`: what operators change at run time.

A change counts for all instances, whichever has written it. Each says whether its own workers go by
it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote

import typer
from pydantic import ValidationError

from proxy.cli.admin_port import address_of, addresses_of, ask, ask_each
from proxy.cli.terminal import (
    AsJson,
    Config,
    checked_pattern,
    say,
    say_json,
    say_table,
    settings_for,
)
from proxy.config.settings import MOST_PER_SECOND, Settings
from proxy.config.target_limit import OverdueLimit
from proxy.errors import ProxyError
from proxy.protocol.times import shown_delay

ANSWER_WITHIN_S: Final = 30.0
PATHS: Final = {"--ingest": ("/pauses", "/ingest/paused"), "--worker": ("/limits", "/limits")}
"""Option -> the path for targets, and the one for what the option stands for."""
COLUMNS = ("targets", "per second", "overdue", "from")
EACH_WORKER = "(each worker)"
RUN_TIME = "run-time"
SETTINGS = "settings"

Targets = Annotated[
    str | None, typer.Argument(help="A target, or a pattern like 'orders-*'.", show_default=False)
]
Admin = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        help="host:port or URL of an admin port: any will do, those named say when they go by it. "
        "Repeatable.",
    ),
]
Ingest = Annotated[bool, typer.Option("--ingest", help="Not a target: the reading of the ingress.")]
Worker = Annotated[
    bool, typer.Option("--worker", help="Not a target: all that each worker delivers or ends.")
]


class Answers(NamedTuple):
    """replies: of those that have answered, one at least; silent: address -> why it has not."""

    replies: list[dict[str, Any]]
    silent: dict[str, str]

    @property
    def is_everywhere(self) -> bool:
        """Whether all that were asked go by the change."""
        return not self.silent and all(reply["in_force"] for reply in self.replies)


def ask_instances(
    settings: Settings,
    admin: Sequence[str] | None,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
) -> Answers:
    """What each instance answers. Raises ProxyError where none does."""

    def ask_one(address: str) -> dict[str, Any]:
        how = {"method": method, "body": body, "within_s": ANSWER_WITHIN_S}
        return ask(address, path, settings.admin.token, **how)

    return Answers(*ask_each(addresses_of(settings.admin, admin), ask_one))


def _path(targets: str | None, option: str, *, is_given: bool) -> str:
    """The path of the call about these targets, or about what the option stands for."""
    if is_given == (targets is not None):
        raise typer.BadParameter(f"name a target or pattern, or {option}: one of the two")
    prefix, whole = PATHS[option]
    return whole if targets is None else f"{prefix}/{quote(checked_pattern(targets), safe='')}"


def tell_done(answers: Answers, done: str, *, as_json: bool) -> None:
    """Say that it is done; exit code 1 where an instance does not go by it yet."""
    first, is_everywhere = answers.replies[0], answers.is_everywhere
    if as_json:
        say_json({**first, "in_force": is_everywhere, "silent": answers.silent})
    else:
        say(done if is_everywhere else f"{done} It is written, but not every instance has noticed.")
        say_silent(answers)
    raise typer.Exit(0 if is_everywhere else 1)


def say_silent(answers: Answers) -> None:
    """Who has not answered, and why."""
    for address, why in answers.silent.items():
        say(f"{address}: {why}")


class NotPaused(ProxyError):
    """What is to be resumed is held back by nothing."""


def pause(
    targets: Targets = None,
    ingest: Ingest = False,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Hold back what is for some targets, or with --ingest take nothing more in.

    Counts for all instances, until it is resumed. Exit code 1 where one has not noticed yet."""
    path = _path(targets, "--ingest", is_given=ingest)
    answers = ask_instances(settings_for(config), admin, "PUT", path)
    done = "Taking in is paused." if ingest else f"{targets} is paused."
    tell_done(answers, done, as_json=as_json)


def resume(
    targets: Targets = None,
    ingest: Ingest = False,
    per_second: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_PER_SECOND,
            help="Release what was held back at so many records a second, over all partitions.",
        ),
    ] = None,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let go what `pause` holds back: name the same pattern, or --ingest.

    Exit code 1 where it is not paused, or an instance has not noticed yet."""
    path, settings = _path(targets, "--ingest", is_given=ingest), settings_for(config)
    if ingest and per_second is not None:
        raise typer.BadParameter(
            "--per-second is for targets; the ingress is read as fast as may be"
        )
    if targets is not None and per_second is None:
        _refuse_unless_held(settings, admin, targets)
    rate = "" if per_second is None else f"?per_second={per_second}"
    answers = ask_instances(settings, admin, "DELETE", f"{path}{rate}")
    done = "Taking in goes on." if ingest else f"{targets} is resumed."
    tell_done(answers, done, as_json=as_json)


def pauses(admin: Admin = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the targets that are paused or released at a rate, and whether taking in is paused."""
    settings = settings_for(config)
    answers = ask_instances(settings, admin, "GET", "/pauses")
    ingest = ask_instances(settings, admin, "GET", "/ingest")
    paused, rates = _held(answers)
    is_ingest_paused = any(reply["paused"] for reply in ingest.replies)
    unread = sum(reply["unread"] for reply in ingest.replies)
    if as_json:
        about_ingest = {"paused": is_ingest_paused, "unread": unread}
        shown = {"paused": paused, "release_rates": rates, "ingest": about_ingest}
        say_json({**shown, "silent": answers.silent})
        return
    for pattern in paused:
        say(f"paused: {pattern}")
    for pattern, per_second in sorted(rates.items()):
        say(f"resumed at {per_second:,} records a second: {pattern}")
    if is_ingest_paused:
        say(f"taking in is paused: {unread:,} records of the ingress wait to be read")
    if not (paused or rates or is_ingest_paused):
        say("Nothing is paused.")
    say_silent(answers)


def _held(answers: Answers) -> tuple[list[str], dict[str, int]]:
    """Patterns that are paused, and those of pauses that are over to their rates."""
    paused = {pattern for reply in answers.replies for pattern in reply["paused"]}
    rates = {name: n for reply in answers.replies for name, n in reply["release_rates"].items()}
    return sorted(paused), rates


def _refuse_unless_held(settings: Settings, admin: Sequence[str] | None, targets: str) -> None:
    """A pattern with a slip of the pen would leave what is meant paused."""
    paused, rates = _held(ask_instances(settings, admin, "GET", "/pauses"))
    if targets not in {*paused, *rates}:
        raise NotPaused(
            f"{targets} is not paused, and no rate counts for it.",
            f"Name what was paused, as it was: {', '.join(paused)}."
            if paused
            else "Nothing is paused.",
        )


class NotLimited(ProxyError):
    """No limit was set at run time where one is to be cleared."""


limits_app = typer.Typer(invoke_without_command=True)


@limits_app.callback()
def limits(
    context: typer.Context, admin: Admin = None, config: Config = None, as_json: AsJson = False
) -> None:
    """List the caps and rules for the overdue that count; the first that fits a target does.

    `limits set` and `limits clear` change them at run time, for all instances."""
    if context.invoked_subcommand is not None:
        return
    answers = ask_instances(settings_for(config), admin, "GET", "/limits")
    found: list[dict[str, Any]] = []
    for reply in answers.replies:
        found += [one for one in reply["limits"] if one not in found]
    found.sort(key=lambda one: one["source"] == SETTINGS)
    if as_json:
        first = answers.replies[0]
        bounds = [{"max_per_second": n, "source": source} for n, source in _bounds(answers.replies)]
        say_json({**first, "limits": found, "each_worker": bounds, "silent": answers.silent})
        return
    rows = [*_row_of_workers(answers.replies), *map(_row, found)]
    if rows:
        say_table(COLUMNS, rows)
    else:
        say("No target has a limit.")
    say_silent(answers)


@limits_app.command("set")
def set_limit(
    targets: Targets = None,
    worker: Worker = False,
    per_second: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_PER_SECOND, help="Records a second, for each target and worker."
        ),
    ] = None,
    overdue: Annotated[
        str | None,
        typer.Option(
            metavar="AGE:ACTION",
            help="What becomes of records overdue by more: 1h:drop, 1h:dead-letter, 1h:deliver.",
        ),
    ] = None,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Set a cap, a rule for the overdue, or both, in place of what was set for the same pattern.

    Exit code 1 where an instance has not noticed yet."""
    path = _path(targets, "--worker", is_given=worker)
    if worker and (per_second is None or overdue is not None):
        raise typer.BadParameter("with --worker name --per-second; --overdue is for targets")
    if per_second is None and overdue is None:
        raise typer.BadParameter("name --per-second, --overdue, or both")
    body: dict[str, Any] = {} if per_second is None else {"per_second": per_second}
    if overdue is not None:
        body["overdue"] = _rule(overdue)
    answers = ask_instances(settings_for(config), admin, "PUT", path, body)
    tell_done(answers, f"{targets or 'Each worker'} is limited.", as_json=as_json)


@limits_app.command("clear")
def clear_limit(
    targets: Targets = None,
    worker: Worker = False,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back what was set at run time: what the settings say counts again.

    Exit code 1 where nothing was set, or an instance has not noticed yet."""
    path, settings = _path(targets, "--worker", is_given=worker), settings_for(config)
    known = ask_instances(settings, admin, "GET", "/limits").replies
    if not any(_is_set(reply, targets) for reply in known):
        raise NotLimited(
            f"Nothing was set at run time for {targets or 'each worker'}.",
            "`limits` lists what is set: name the pattern as it stands there." if targets else "",
        )
    answers = ask_instances(settings, admin, "DELETE", path)
    whose = targets or "A worker as a whole"
    tell_done(answers, f"{whose} has no limit set at run time.", as_json=as_json)


def _is_set(reply: Mapping[str, Any], targets: str | None) -> bool:
    """Whether something was set at run time for this pattern; None: for each worker."""
    if targets is None:
        return _source(reply) == RUN_TIME
    return any((one["pattern"], one["source"]) == (targets, RUN_TIME) for one in reply["limits"])


def _rule(text: str) -> Mapping[str, str]:
    older_than, _, action = text.partition(":")
    try:
        rule = OverdueLimit.model_validate({"older_than": older_than, "action": action})
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(
            f"{text!r} is no rule: write age:action, like 1h:drop; actions are drop, dead-letter "
            f"and deliver ({why})"
        ) from None
    return {"older_than": shown_delay(rule.older_than_ms), "action": rule.action}


def _row_of_workers(replies: Iterable[Mapping[str, Any]]) -> Iterable[list[str]]:
    """None where nothing bounds them."""
    for per_second, source in _bounds(replies):
        if per_second is not None:
            yield [EACH_WORKER, f"{per_second:,}", "", source]


def _bounds(replies: Iterable[Mapping[str, Any]]) -> list[tuple[int | None, str]]:
    """On each worker as a whole; of instances that do not say the same each."""
    found = ((reply["max_per_second"], _source(reply)) for reply in replies)
    return list(dict.fromkeys(found))


def _source(reply: Mapping[str, Any]) -> str:
    """An older proxy knows the settings' bound alone."""
    return str(reply.get("max_per_second_source", SETTINGS))


def _row(limit: Mapping[str, Any]) -> list[str]:
    rule, per_second = limit["overdue"], limit["per_second"]
    return [
        limit["pattern"],
        "" if per_second is None else f"{per_second:,}",
        "" if rule is None else f"{rule['older_than']}:{rule['action']}",
        limit["source"],
    ]


SKIPPED_WITHIN_S: Final = 120.0
"""The end of a batch of many records is found in some dozen steps, each with a connection."""


def skip(
    partition: Annotated[int, typer.Option(min=0, help="The partition of the ingress.")],
    offset: Annotated[
        int, typer.Option(min=0, help="Where it cannot be read on: the log and /readyz name it.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be skipped, and change nothing.")
    ] = False,
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of any instance's admin port.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Skip the record batch at which a partition of the ingress cannot be read on.

    Each of its records becomes a dead letter without content, `record-unreadable`. What can be read
    is never skipped. Exit code 1 where the instance asked has not read on yet."""
    settings = settings_for(config)
    done = ask(
        admin or address_of(settings.admin),
        "/skips",
        settings.admin.token,
        method="POST",
        body={"partition": partition, "offset": offset, "dry_run": dry_run},
        within_s=SKIPPED_WITHIN_S,
    )
    if as_json:
        say_json(done)
    else:
        say(f"{_said_of_skip(done)} ({done['why']})")
    raise typer.Exit(0 if done["in_force"] or dry_run else 1)


def _said_of_skip(done: dict[str, object]) -> str:
    where = f"offsets {done['offset']} up to, not including, {done['end']} of partition"
    if done["dry_run"]:
        return f"would skip {where} {done['partition']}"
    later = "" if done["in_force"] else "; written, but the proxy has not read on yet"
    return f"skipped {where} {done['partition']}{later}"
