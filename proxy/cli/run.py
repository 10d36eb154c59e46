"""`run`: the proxy; `topics create`: its own topics."""

import typer

from proxy.cli.terminal import AsJson, Bootstrap, Config, say, say_json, settings_for
from proxy.kafka.access import explained
from proxy.kafka.client_settings import client_logger
from proxy.kafka.topics import create_missing_topics
from proxy.logs import configure_logs

topics_app = typer.Typer(help="The proxy's own topics.", no_args_is_help=True)


def run(config: Config = None) -> None:
    """Run the proxy until it is told to stop (SIGTERM or Ctrl-C)."""
    settings = settings_for(config)
    configure_logs(settings.log.level, settings.log.format)
    from proxy.worker.run import run as run_worker

    raise typer.Exit(run_worker(settings))


@topics_app.callback()
def _topics() -> None:
    """Keep `create` a command of its own."""


@topics_app.command()
def create(config: Config = None, bootstrap: Bootstrap = None, as_json: AsJson = False) -> None:
    """Create those of the proxy's topics that do not exist yet; change none that does."""
    settings = settings_for(config, bootstrap)
    client_logger().disabled = True  # the error reports it
    try:
        with explained(settings):
            created = create_missing_topics(settings)
    finally:
        client_logger().disabled = False
    if as_json:
        say_json({"created": created})
        return
    for topic in settings.topics.own:
        say(f"{topic}: {'created' if topic in created else 'was there already'}")
