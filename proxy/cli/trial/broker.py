"""`broker`: the embedded Kafka broker alone."""

from pathlib import Path
from typing import Annotated

import typer

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
    from proxy.embedded import run_broker

    run_broker(port, data_dir)
