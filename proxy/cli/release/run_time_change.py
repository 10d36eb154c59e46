"""What is changed at run time. It counts for all instances, whichever has written it; each says
whether its own workers go by it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote

import typer

from proxy.cli.admin_port import addresses_of, ask, ask_each
from proxy.cli.terminal.options import checked_pattern
from proxy.cli.terminal.output import say, say_json
from proxy.config.settings import Settings

ANSWER_WITHIN_S: Final = 30.0

Admin = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        help="host:port or URL of an admin port: any will do, those named say when they go by it. "
        "Repeatable.",
    ),
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


def path_of(prefix: str, pattern: str) -> str:
    """Of the call about a pattern; raises a usage error for one that no topic's name fits."""
    return f"{prefix}/{quote(checked_pattern(pattern), safe='')}"


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
