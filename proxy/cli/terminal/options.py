"""Options that several commands share, and the settings they lead to."""

from pathlib import Path
from typing import Annotated

import typer

from proxy.config.settings import Settings
from proxy.config.sources import CONFIG_VARIABLE, load_settings
from proxy.config.values import refuse_no_addresses
from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.errors import SettingsError
from proxy.requests.header_values import LONGEST_ID_BYTES, is_ident
from proxy.requests.times import parse_delay_ms, parse_instant_ms
from proxy.requests.topic_names import TARGETS_PATTERN

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, help="Settings file (YAML)."),
]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", help="Broker, host:port; beats the settings."),
]
EachAdmin = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        help="host:port or URL of an admin port; name that of each instance, or a name that "
        "stands for all their addresses. Repeatable.",
    ),
]
Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC, not in the local zone.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]


def checked_ident(text: str) -> str:
    """The text of an id; raises a usage error for one that no record can have."""
    if not is_ident(text.encode()):
        raise typer.BadParameter(f"an id has 1 to {LONGEST_ID_BYTES} bytes")
    return text


def checked_pattern(text: str) -> str:
    """A pattern of targets; raises a usage error for one that no topic's name fits."""
    if TARGETS_PATTERN.fullmatch(text) is None:
        raise typer.BadParameter(
            f"{text!r} is no pattern of targets: 1 to 249 of the characters "
            "a-z A-Z 0-9 . _ - * ? [ ] !"
        )
    return text


def checked_instant_ms(text: str) -> int:
    """A time as epoch ms; raises a usage error for what is none."""
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def checked_delay_ms(text: str) -> int:
    """Return a length of time in ms. Raises a usage error for other text and for bare numbers."""
    if text.isdecimal() and text.strip("0"):
        raise typer.BadParameter(f"{text} has no unit: write {text}s for seconds, or {text}ms")
    try:
        return parse_delay_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def checked_origin(text: str) -> Origin:
    """Where a record lies; raises a usage error for what names none."""
    if (found := read_origin(text)) is not None:
        return found
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise typer.BadParameter(
        f"{shown!r} names no record: write topic/partition/offset (timer.ingress/2/4711)"
    )


def settings_for_embedded(bootstrap: str, config: Path | None = None) -> Settings:
    """The settings of file and environment, for a broker just started that needs no password."""
    return load_settings(config).model_copy(update={"kafka": {"bootstrap.servers": bootstrap}})


def settings_for(config: Path | None, bootstrap: str | None = None) -> Settings:
    """The settings of file and environment, with the broker the person named, if any."""
    settings = load_settings(config)
    if bootstrap is None:
        return settings
    try:
        refuse_no_addresses(bootstrap)
    except ValueError as error:
        raise SettingsError(f"{error}.") from None
    kafka = {**settings.kafka, "bootstrap.servers": bootstrap}
    return settings.model_copy(update={"kafka": kafka})
