"""`run`: the proxy."""

import typer

from proxy.cli.terminal import Config, settings_for
from proxy.logs import configure_logs


def run(config: Config = None) -> None:
    """Run the proxy until it is told to stop (SIGTERM or Ctrl-C)."""
    settings = settings_for(config)
    configure_logs(settings.log.level, settings.log.format)
    from proxy.worker.run import run as run_worker

    raise typer.Exit(run_worker(settings))
