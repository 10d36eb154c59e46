"""Options that several commands share, and the settings they lead to."""

from pathlib import Path
from typing import Annotated

import typer

from proxy.config.settings import Settings
from proxy.config.sources import CONFIG_VARIABLE, load_settings
from proxy.requests.header_values import LONGEST_ID_BYTES, is_ident

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, help="Settings file (YAML)."),
]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", help="Broker, host:port; beats the settings."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]


def checked_ident(text: str) -> str:
    """The text of an id; raises a usage error for one that no record can have."""
    if not is_ident(text.encode()):
        raise typer.BadParameter(f"an id has 1 to {LONGEST_ID_BYTES} bytes")
    return text


def settings_for_embedded(bootstrap: str, config: Path | None = None) -> Settings:
    """The settings of file and environment, for a broker just started that needs no password."""
    return load_settings(config).model_copy(update={"kafka": {"bootstrap.servers": bootstrap}})


def settings_for(config: Path | None, bootstrap: str | None = None) -> Settings:
    """The settings of file and environment, with the broker the person named, if any."""
    settings = load_settings(config)
    if bootstrap is None:
        return settings
    kafka = {**settings.kafka, "bootstrap.servers": bootstrap}
    return settings.model_copy(update={"kafka": kafka})
