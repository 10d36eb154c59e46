"""`dev` and `broker`: a broker and a proxy for trials."""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Self

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from proxy.cli.admin_port import DIRECTLY
from proxy.cli.terminal import StopAsked, say, settings_for_embedded, stop_raises
from proxy.config.settings import Settings, TopicSettings
from proxy.config.sources import CONFIG_VARIABLE, load_settings, variable_name
from proxy.embedded import EmbeddedBroker
from proxy.embedded.server import GuardedProcess, is_free, pick_free
from proxy.errors import ProxyError
from proxy.kafka.access import explained
from proxy.kafka.topics import admin_client, await_known, ensure_topics
from proxy.logs import configure_logs

LOOK_EVERY_S = 0.1
LAST_LINES = 20
NAMES_A_BROKER = (CONFIG_VARIABLE, variable_name(("kafka",)))


def proxy_environment(settings: Settings, data_dir: Path, admin_port: int) -> dict[str, str]:
    """Return the environment variables for a proxy of this broker."""
    values = {
        ("kafka", "bootstrap.servers"): settings.bootstrap_servers,
        ("data_dir",): str(data_dir),
        ("admin", "port"): str(admin_port),
    }
    return {variable_name(path): text for path, text in values.items()}


class ProxyEnded(ProxyError):
    """The proxy ended by itself, was not ready in time, or lost its broker."""


class ProxyProcess:
    """A `run` command in its own process group. It ends with this process.

    `log` receives its stderr."""

    def __init__(
        self, environment: Mapping[str, str], admin_port: int, log: Path | None = None
    ) -> None:
        self.admin_port = admin_port
        kept = os.environ.items()
        others = {n: text for n, text in kept if not n.upper().startswith(NAMES_A_BROKER)}
        self.environment = {**others, **environment}
        self._log = log
        self._process: GuardedProcess | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code

    def start(self) -> None:
        command = [sys.executable, "-m", "proxy", "run"]
        with self._log.open("ab") if self._log else nullcontext() as log:
            self._process = GuardedProcess(command, environment=self.environment, stderr=log)

    def is_ready(self) -> bool:
        """Return whether every shard has caught up. Raises ProxyEnded if the process is gone."""
        if self.exit_code is not None:
            raise ProxyEnded(
                f"The proxy process ended unexpectedly with exit code {self.exit_code}.",
                self.last_words(),
            )
        try:
            url = f"http://127.0.0.1:{self.admin_port}/readyz"
            with DIRECTLY.open(url, timeout=2) as answer:
                return bool(json.load(answer)["ready"])
        except (OSError, ValueError):
            return False

    def await_ready(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not self.is_ready():
            if time.monotonic() > deadline:
                late = f"The proxy was not ready after {limit_s:.0f} s."
                raise ProxyEnded(late, self.last_words())
            time.sleep(LOOK_EVERY_S)

    def last_words(self) -> str:
        if self._log is None:
            return "See its last log lines."
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(["Its last log lines:", *lines[-LAST_LINES:]])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL if the process takes too long. Return the exit code."""
        return 0 if self._process is None else self._process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


Port = Annotated[int, typer.Option(min=0, max=65_535, help="Port of the broker. 0: any free port.")]


def broker(
    port: Port = 9092,
    data_dir: Annotated[Path, typer.Option(help="Folder for the broker's data.")] = Path(
        "data/broker"
    ),
) -> None:
    """Run a real Kafka broker on 127.0.0.1 for trials and tests, until Ctrl-C."""
    with suppress(StopAsked), stop_raises(), EmbeddedBroker(data_dir, port=port) as running:
        say(f"Kafka ready on {running.bootstrap_servers}")
        running.wait()


DEFAULT_PORT = 9092
READY_LIMIT_S = 60.0
WATCH_EVERY_S = 0.5
TRIAL_TOPIC = "orders"
TRIAL_PARTITIONS = 3


def dev(
    port: Port = DEFAULT_PORT,
    data_dir: Annotated[
        Path, typer.Option(help="Folder for the data of broker and proxy. The data is kept.")
    ] = Path("data/dev"),
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, help="Settings file (YAML)."),
    ] = None,
) -> None:
    """Run a real Kafka broker with the proxy, and print commands to try, until Ctrl-C."""
    settings = load_settings(config)
    configure_logs(settings.log.level, settings.log.format)
    with suppress(StopAsked), stop_raises():
        _serve(config, port, data_dir)


def _serve(config: Path | None, port: int, data_dir: Path) -> None:
    say("starting the broker …")
    with EmbeddedBroker(data_dir / "broker", port=port) as broker:
        settings = settings_for_embedded(broker.bootstrap_servers, config)
        _make_topics(settings)
        wanted = settings.admin.port
        is_usable = wanted and is_free("127.0.0.1", wanted)
        admin_port = wanted if is_usable else pick_free("127.0.0.1")
        say("starting the proxy …")
        environment = proxy_environment(settings, data_dir / "proxy", admin_port)
        named = {CONFIG_VARIABLE: str(config)} if config else {}
        with ProxyProcess({**environment, **named}, admin_port) as proxy:
            proxy.await_ready(READY_LIMIT_S)
            words = invitation(command_name(), broker.port, admin_port, settings.topics)
            say(*words.split("\n"))
            while broker.is_running and proxy.exit_code is None:
                time.sleep(WATCH_EVERY_S)
            if broker.is_running:
                proxy.is_ready()
            raise ProxyEnded(
                "The broker process ended unexpectedly.", f"Its log is {broker.log_path}."
            )


def _make_topics(settings: Settings) -> None:
    with explained(settings):
        ensure_topics(settings)
        admin = admin_client(settings)
        wanted = NewTopic(TRIAL_TOPIC, num_partitions=TRIAL_PARTITIONS)
        try:
            admin.create_topics([wanted])[TRIAL_TOPIC].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        await_known([TRIAL_TOPIC], admin)


def command_name() -> str:
    """Return how a user in this folder calls this command."""
    called = Path(sys.argv[0])
    if called.name != "kafka-delay-proxy":
        return f"{Path(sys.executable).name} -m proxy"
    if shutil.which(called.name) == str(called.absolute()):
        return called.name
    with suppress(ValueError):
        return str(called.absolute().relative_to(Path.cwd()))
    return str(called)


def invitation(command: str, port: int, admin_port: int, topics: TopicSettings) -> str:
    """Return the commands to paste into other terminals."""
    outcomes, dead_letters = topics.outcomes, topics.dead_letters
    where = "" if port == DEFAULT_PORT else f" --bootstrap 127.0.0.1:{port}"
    return f"""
Kafka listens on 127.0.0.1:{port}, and the proxy is ready. In a second terminal, watch a topic:

  {command} watch {TRIAL_TOPIC}{where}

In a third terminal, send a record that is delivered after 10 seconds:

  {command} send --topic {TRIAL_TOPIC} --delay 10s --key k1 --value hello{where}

A record with an --id can be cancelled. A new record with the same id replaces it:

  {command} send --topic {TRIAL_TOPIC} --delay 60s --id o1 --value "too early"{where}
  {command} cancel o1{where}

Records that end without delivery are in the topic {outcomes}.
Undeliverable records are also in {dead_letters}.
Any Kafka client can do the same with a few headers: see examples/.
The admin page shows the pending records: http://127.0.0.1:{admin_port}/
Ctrl-C stops the broker and the proxy.
"""
