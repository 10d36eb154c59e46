"""`dev`: a real broker and the proxy in front of it, ready to try."""

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from proxy.cli.terminal.options import Config, settings_for, settings_for_embedded
from proxy.cli.terminal.output import say
from proxy.cli.terminal.stopping import StopAsked, stop_raises
from proxy.cli.trial.broker import Port
from proxy.cli.trial.proxy_process import ProxyEnded, ProxyProcess, proxy_environment
from proxy.config.settings import Settings, TopicSettings
from proxy.config.sources import CONFIG_VARIABLE
from proxy.embedded import EmbeddedBroker
from proxy.embedded.ports import is_free, pick_free
from proxy.kafka.access.broker_errors import explained
from proxy.kafka.topics import admin_client, await_known, ensure_topics
from proxy.logs import configure_logs

DEFAULT_PORT = 9092
READY_LIMIT_S = 60.0
LOOK_EVERY_S = 0.5
TRIAL_TOPIC = "orders"
TRIAL_PARTITIONS = 3


def dev(
    port: Port = DEFAULT_PORT,
    data_dir: Annotated[
        Path, typer.Option(help="Folder for the broker's and the proxy's data; kept.")
    ] = Path("data/dev"),
    config: Config = None,
) -> None:
    """Start a real Kafka broker and the proxy in front of it; say what to paste where."""
    settings = settings_for(config)
    configure_logs(settings.log.level, settings.log.format)
    with suppress(StopAsked), stop_raises():
        _serve(config, port, data_dir)


def _serve(config: Path | None, port: int, data_dir: Path) -> None:
    say("starting the broker …")
    with EmbeddedBroker(data_dir / "broker", port=port) as broker:
        settings = settings_for_embedded(broker.bootstrap_servers, config)
        make_topics(settings, {TRIAL_TOPIC: {}})
        admin_port = _admin_port(settings)
        say("starting the proxy …")
        with proxy_process(settings, data_dir / "proxy", admin_port, config) as proxy:
            proxy.await_ready(READY_LIMIT_S)
            words = invitation(command_name(), broker.port, admin_port, settings.topics)
            say(*words.split("\n"))
            while broker.is_running and proxy.exit_code is None:
                time.sleep(LOOK_EVERY_S)
            if broker.is_running:
                proxy.is_ready()
            raise ProxyEnded("The broker ended by itself.", f"Its log is {broker.log_path}.")


def make_topics(settings: Settings, topics: dict[str, dict[str, str]]) -> None:
    """The proxy's own topics, and `topics` for trials: configuration by name."""
    with explained(settings):
        ensure_topics(settings)
        admin = admin_client(settings)
        wanted = [
            NewTopic(name, num_partitions=TRIAL_PARTITIONS, config=config)
            for name, config in topics.items()
        ]
        for answer in admin.create_topics(wanted).values():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        await_known(list(topics), admin)


def proxy_process(
    settings: Settings, data_dir: Path, admin_port: int, config: Path | None = None
) -> ProxyProcess:
    """The proxy for this broker, with its data in `data_dir`; logs go where ours go."""
    environment = proxy_environment(settings, data_dir, admin_port)
    named = {CONFIG_VARIABLE: str(config)} if config else {}
    return ProxyProcess({**environment, **named}, admin_port)


def command_name() -> str:
    """How a person in this folder calls this command."""
    called = Path(sys.argv[0])
    if called.name != "kafka-delay-proxy":
        return f"{Path(sys.executable).name} -m proxy"
    if shutil.which(called.name) == str(called.absolute()):
        return called.name
    with suppress(ValueError):
        return str(called.absolute().relative_to(Path.cwd()))
    return str(called)


def invitation(command: str, port: int, admin_port: int, topics: TopicSettings) -> str:
    """What to paste into other terminals."""
    outcomes, dead_letters = topics.outcomes, topics.dead_letters
    where = "" if port == DEFAULT_PORT else f" --bootstrap 127.0.0.1:{port}"
    return f"""
Kafka listens on 127.0.0.1:{port}, the proxy is ready. In a second terminal, watch a topic:

  {command} watch {TRIAL_TOPIC}{where}

and in a third, send it something for later:

  {command} send --topic {TRIAL_TOPIC} --delay 10s --key k1 --value hello{where}

With an --id it can be taken back, or replaced by another with the same id:

  {command} send --topic {TRIAL_TOPIC} --delay 60s --id o1 --value "too early"{where}
  {command} cancel o1{where}

What ended otherwise than by delivery, and why, is in two topics to watch: {outcomes} and
{dead_letters}.
Any Kafka client can do all of this with a few headers: see examples/.
What waits, in a browser: http://127.0.0.1:{admin_port}/   Ctrl-C stops both.
"""


def _admin_port(settings: Settings) -> int:
    wanted = settings.admin.port
    return wanted if wanted and is_free("127.0.0.1", wanted) else pick_free("127.0.0.1")
