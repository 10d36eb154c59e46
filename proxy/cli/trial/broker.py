"""`broker`: the embedded Kafka broker alone."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from proxy.cli.terminal.output import say
from proxy.cli.terminal.stopping import StopAsked, stop_raises
from proxy.embedded import EmbeddedBroker

Port = Annotated[
    int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 picks a free one.")
]


def broker(
    port: Port = 9092,
    data_dir: Annotated[Path, typer.Option(help="Folder for the broker's data.")] = Path(
        "data/broker"
    ),
) -> None:
    """Run a real Kafka broker on 127.0.0.1, for trials and tests, until Ctrl-C."""
    with suppress(StopAsked), stop_raises(), EmbeddedBroker(data_dir, port=port) as running:
        say(f"Kafka ready on {running.bootstrap_servers}")
        running.wait()
