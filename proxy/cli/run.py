"""`run`: the proxy; `topics create`: its own topics."""

from typing import Annotated

import typer

from proxy.cli.declarations import Notation, declared_topics
from proxy.cli.terminal import AtBroker, WithBroker, say, say_json
from proxy.kafka.access import explained
from proxy.kafka.client_settings import client_logger
from proxy.kafka.topics import create_missing_topics
from proxy.logs import configure_logs


def run(asked: WithBroker) -> None:
    """Run the proxy until SIGTERM or Ctrl-C."""
    settings = asked.settings
    configure_logs(settings.log.level, settings.log.format)
    from proxy.worker.run import run as run_worker

    raise typer.Exit(run_worker(settings))


def create_topics(
    asked: AtBroker,
    notation: Annotated[
        Notation | None,
        typer.Option(
            "--print",
            help="Create nothing. Print the topics for kafka-topics.sh (kafka), as KafkaTopic "
            "(strimzi), or as kafka_topic of Mongey/kafka (terraform).",
        ),
    ] = None,
) -> None:
    """Create the proxy's missing topics. Existing topics stay unchanged."""
    if notation is not None:
        for text in declared_topics(asked.settings, notation):
            say(*text.splitlines())
        return
    client_logger().disabled = True  # the ProxyError that follows says the same
    try:
        with explained(asked.settings):
            created = create_missing_topics(asked.settings)
    finally:
        client_logger().disabled = False
    if asked.as_json:
        say_json({"created": created})
        return
    for topic in (*asked.settings.topics.own, asked.settings.topics.changes):
        say(f"{topic}: {'created' if topic in created else 'exists already'}")
