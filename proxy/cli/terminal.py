"""Output, options and signals of all commands."""

import json
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cached_property, partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from proxy.config.settings import Settings
from proxy.config.sources import CONFIG_VARIABLE, load_settings
from proxy.dead_letters.letter import Origin, read_origin
from proxy.logs import plain
from proxy.protocol.header_values import LONGEST_ID_BYTES, is_ident
from proxy.protocol.policy import TARGETS_PATTERN
from proxy.protocol.times import parse_delay_ms, parse_instant_ms

P = ParamSpec("P")
T = TypeVar("T")


class StopAsked(BaseException):
    """The process received SIGTERM or SIGINT."""


@contextmanager
def stop_raises() -> Iterator[None]:
    """Raise StopAsked in the main thread at the first signal.

    Later signals are ignored, so that the command can clean up."""
    came: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise StopAsked

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if not came:
                signal.signal(number, handler)


# All output passes `plain` here, so that control characters in records do not reach a terminal.

VALUE_SHOWN: Final = 60
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))

_shows_utc: ContextVar[bool] = ContextVar("shows_utc", default=False)


def say(*lines: str) -> None:
    """Print each line to stdout without markup, and flush."""
    print(*map(plain, lines), sep="\n", flush=True)


def counted(count: int, what: str) -> str:
    """Return `1 record` or `1,204 records`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def say_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line, in ASCII without control characters."""
    print(json.dumps(value).replace("\x7f", "\\u007f"), flush=True)


def say_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], whole: Sequence[str] = ()
) -> None:
    """Print a table on a terminal, else plain lines.

    The columns `whole` are never folded, so that people can copy them."""
    plain_rows = [[*map(plain, row)] for row in rows]
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        lines = [columns, *plain_rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        say(*("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines))
        return
    table = Table(*(Column(name, overflow="fold", no_wrap=name in whole) for name in columns))
    for row in plain_rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal. The yielded function takes the number of records done so
    far, out of `total`."""
    with Progress(transient=True, disable=not Console().is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


def text_of(raw: bytes | None) -> str | None:
    """Return bytes as text for a program. Escape bytes that are not text."""
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def shown_bytes(raw: bytes | None) -> str:
    """Return bytes as short text for a person."""
    if raw is None:
        return "null"
    text = plain(text_of(raw))
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}… ({len(raw)} bytes)"


def shown_time(epoch_ms: int) -> str:
    """Return a time with date, milliseconds and UTC offset."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
        return (moment if _shows_utc.get() else moment.astimezone()).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)


def show_utc(is_wanted: bool) -> bool:
    """Show times in UTC from now on if `is_wanted`, else in the local zone."""
    _shows_utc.set(is_wanted)
    return is_wanted


def shown_duration(duration_ms: int) -> str:
    """Return a duration in its largest unit, with at most one decimal."""
    for unit, length_ms in UNITS:
        if duration_ms >= length_ms:
            return f"{round(duration_ms / length_ms, 1):g} {unit}"
    return f"{duration_ms} ms"


# Arguments and options. Their parsers raise usage errors.


def checked(read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return the result of `read`. Raise its ValueError as a usage error."""
    try:
        return read(*given, **named)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def checked_ident(text: str) -> str:
    """Return a valid id."""
    if not is_ident(text.encode()):
        raise typer.BadParameter(f"an id has 1 to {LONGEST_ID_BYTES} bytes")
    return text


def checked_pattern(text: str) -> str:
    """Return a valid pattern of targets."""
    if TARGETS_PATTERN.fullmatch(text) is None:
        raise typer.BadParameter(
            f"{text!r} is not a pattern of targets: write 1 to 249 of the characters a-z A-Z "
            "0-9 . _ - * ? [ ] !"
        )
    return text


def checked_instant_ms(text: str) -> int:
    """Parse a time to epoch ms."""
    return checked(parse_instant_ms, text)


def checked_delay_ms(text: str) -> int:
    """Parse a duration to ms. A number needs a unit."""
    if text.isdecimal() and text.strip("0"):
        raise typer.BadParameter(f"{text} has no unit: write {text}s for seconds, or {text}ms")
    return checked(parse_delay_ms, text)


def checked_origin(text: str) -> Origin:
    """Parse the place of a record."""
    if (found := read_origin(text)) is not None:
        return found
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise typer.BadParameter(
        f"{shown!r} is not the place of a record: write topic/partition/offset "
        f"(timer.ingress/2/4711). {find_by_id(text)}"
    )


def find_by_id(text: str) -> str:
    """Return the sentence for a user who gave `text`, perhaps an id, in place of an origin."""
    shown = shlex.quote(text) if text.isprintable() and 0 < len(text) <= 60 else "ID"
    return f"If you only know the id, `kafka-delay-proxy find --id {shown}` shows the origin."


def option(
    about: str, *names: str, default: Any = None, kind: Any = typer.Option, **how: Any
) -> Any:
    """Return the field of an option. Its default name is `--` and the field's name.

    `how` is passed to typer."""
    return field(default=default, metadata={"kind": kind, "names": names, "help": about, **how})


flag = partial(option, default=False)
argument = partial(option, default=MISSING, kind=typer.Argument)


@dataclass(frozen=True, kw_only=True)
class WithSettings:
    """Options of a command that reads the settings."""

    config: Path | None = option("Settings file (YAML).", "--config", "-c", envvar=CONFIG_VARIABLE)
    chosen: list[str] | None = option(
        "Override a setting: key=value, such as kafka.security.protocol=SASL_SSL. May be repeated.",
        "--set",
    )

    @cached_property
    def settings(self) -> Settings:
        return load_settings(self.config, self.chosen or ())


@dataclass(frozen=True, kw_only=True)
class WithBroker(WithSettings):
    """Options of a command that connects to the broker."""

    bootstrap: str | None = option(
        "Address of a broker, host:port. Default: from the settings.", "--bootstrap", "-b"
    )

    @cached_property
    def settings(self) -> Settings:
        chosen = self.chosen or []
        if self.bootstrap is not None:
            chosen = [*chosen, f"kafka.bootstrap.servers={self.bootstrap}"]
        return load_settings(self.config, chosen)


@dataclass(frozen=True, kw_only=True)
class Configured(WithSettings):
    """Options of a command that reads the settings and prints a result."""

    as_json: bool = flag("Print JSON for programs.", "--json")


@dataclass(frozen=True, kw_only=True)
class AtBroker(Configured, WithBroker):
    """Options of a command that asks the broker and prints a result."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Options of a command that shows times."""

    utc: bool = flag("Show times in UTC instead of the local zone.", callback=show_utc)


SHARED: Final = ("admin", "bootstrap", "config", "chosen", "as_json", "utc")
"""Options of many commands. The help shows them last."""


def with_options(run: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter whose type is a class of options by its fields."""
    own = signature(run).parameters
    kinds: dict[str, Any] = {name: one.annotation for name, one in own.items()}
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    options: list[Parameter] = []
    for name, one in own.items():
        options += map(_parameter, _asked(groups[name])) if name in groups else [one]

    @wraps(run)
    def command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in _asked(group)})
        run(**given)

    options = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
    options.sort(key=lambda one: one.name in SHARED)
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in options}
    return command


def _asked(group: Any) -> list[Field[Any]]:
    """Return the fields that are options. If a subclass gives a field a fixed value, the field is
    no option."""
    return [each for each in fields(group) if each.metadata]


def _parameter(one: Field[Any]) -> Parameter:
    how = dict(one.metadata)
    kind, names = how.pop("kind"), how.pop("names")
    if kind is typer.Option:
        names = names or (f"--{one.name.rstrip('_').replace('_', '-')}",)
    default = Parameter.empty if one.default is MISSING else one.default
    annotation = Annotated[one.type, kind(*names, **how)]  # type: ignore[name-defined]
    return Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def settings_for_embedded(bootstrap: str, config: Path | None = None) -> Settings:
    """Return the settings for a broker of this process. The broker needs no password."""
    return load_settings(config).model_copy(update={"kafka": {"bootstrap.servers": bootstrap}})
