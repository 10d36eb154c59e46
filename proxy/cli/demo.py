"""`demo`: everything once, in about a minute, with a SIGKILL in the middle."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import typer
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from proxy.cli.child import ProxyProcess
from proxy.cli.connection import client_config, explain, explained, headers_of
from proxy.cli.demo_judge import Arrival, Sent, Verdict, due_ms, judge
from proxy.cli.demo_plan import TARGETS, Wanted, make_plan
from proxy.cli.dev import TRIAL_PARTITIONS, make_topics
from proxy.cli.options import AsJson, settings_for_embedded
from proxy.cli.output import progress, say, say_json, say_table
from proxy.cli.stopping import StopAsked, stop_raises
from proxy.clock import wall_clock_ms
from proxy.embedded import EmbeddedBroker
from proxy.embedded.ports import pick_free
from proxy.errors import ProxyError
from proxy.settings import Settings

SEED = 20_261_121
READY_LIMIT_S = 60.0
KILL_AFTER_S = 8.0
PATIENCE_S = 30.0
QUIET_S = 3.0
OUTCOME = "dead-lettered"


class DemoFailed(ProxyError):
    """A record did not end as it must."""


def demo(as_json: AsJson = False) -> None:
    """Broker, proxy, 100 records, a SIGKILL, and the count: each exactly once, none early."""
    with suppress_stop(), tempfile.TemporaryDirectory(prefix="delay-proxy-demo-") as folder:
        verdicts, outcomes = _Demo(Path(folder)).play()
        total = Verdict()
        for verdict in verdicts.values():
            total.add(verdict)
        held = total.held and outcomes.held
        _show({**verdicts, "all": total, "outcomes of dead letters": outcomes})
        say("Held: each exactly once, none early." if held else "It did not hold.")
        if as_json:
            say_json({"held": held, **_summary(total)})
        raise typer.Exit(0 if held else 1)


@contextmanager
def suppress_stop() -> Iterator[None]:
    """Ctrl-C ends the demo with exit code 130, everything stopped and removed."""
    try:
        with stop_raises():
            yield
    except StopAsked:
        raise typer.Exit(130) from None


class _Demo:
    """One play: its folder, and what it has seen so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = time.monotonic()
        self._arrivals: list[Arrival] = []
        self._outcomes: list[bytes] = []

    def play(self) -> tuple[dict[str, Verdict], Verdict]:
        """Start all, send, kill, restart, wait; verdicts on the records, and on the outcomes."""
        self._tell("starting a Kafka broker")
        with EmbeddedBroker(self._folder / "broker") as broker:
            settings = settings_for_embedded(broker.bootstrap_servers)
            stamped = {"message.timestamp.type": "LogAppendTime"}
            make_topics(settings, dict.fromkeys(TARGETS, stamped))
            with self._proxy(settings) as proxy, self._reader(settings) as reader:
                proxy.await_ready(READY_LIMIT_S)
                plan, sent = self._send(settings)
                self._read_until(reader, time.monotonic() + KILL_AFTER_S)
                self._kill_and_restart(proxy, reader)
                self._read_to_end(reader, plan, sent)
                self._tell("stopping the proxy with SIGTERM")
                self._expect_clean_stop(proxy)
                self._read_until(reader, time.monotonic() + QUIET_S)
        verdicts = judge(plan, sent, self._arrivals, settings.topics.dead_letters)
        return verdicts, self._judge_outcomes(plan)

    def _proxy(self, settings: Settings) -> ProxyProcess:
        self._tell("starting the proxy")
        admin_port = pick_free("127.0.0.1")
        environment = {
            "DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "DELAY_PROXY_DATA_DIR": str(self._folder / "proxy"),
            "DELAY_PROXY_ADMIN__PORT": str(admin_port),
            "DELAY_PROXY_LOG__FORMAT": "console",
        }
        return ProxyProcess(environment, admin_port, self._folder / "proxy.log")

    @contextmanager
    def _reader(self, settings: Settings) -> Iterator[Consumer]:
        config = client_config(
            settings,
            group_id="demo",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_wait_max_ms=10,
        )
        consumer = Consumer(config)
        own = [settings.topics.dead_letters, settings.topics.outcomes]
        places = [(topic, part) for topic in TARGETS for part in range(TRIAL_PARTITIONS)]
        places += [(topic, 0) for topic in own]
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        self._outcome_topic = settings.topics.outcomes
        try:
            yield consumer
        finally:
            consumer.close()

    def _send(self, settings: Settings) -> tuple[list[Wanted], dict[str, Sent]]:
        plan = make_plan(settings, wall_clock_ms(), SEED)
        self._tell(f"sending {len(plan)} records to {settings.topics.ingress}")
        sent: dict[str, Sent] = {}
        with explained(settings):
            producer = Producer(client_config(settings, acks="all", enable_idempotence=True))
            for wanted in plan:
                producer.produce(
                    settings.topics.ingress,
                    key=wanted.key,
                    value=wanted.value,
                    headers=list(wanted.all_headers),
                    on_delivery=_receipt(wanted, sent, settings),
                )
            producer.flush(PATIENCE_S)
        if len(sent) < len(plan):
            raise DemoFailed(f"The broker took only {len(sent)} of {len(plan)} records.")
        return plan, sent

    def _kill_and_restart(self, proxy: ProxyProcess, reader: Consumer) -> None:
        self._tell(f"{len(self._arrivals)} records have arrived; SIGKILL to the proxy")
        proxy.kill()
        proxy.start()
        deadline = time.monotonic() + READY_LIMIT_S
        while not proxy.is_ready() and time.monotonic() < deadline:
            self._read_until(reader, time.monotonic() + 0.2)
        self._tell("the proxy is back and has caught up")

    def _read_to_end(self, reader: Consumer, plan: list[Wanted], sent: dict[str, Sent]) -> None:
        """Until all have arrived, or have had their time; then a while longer, for doubles."""
        last_due_ms = max(due_ms(wanted, sent[wanted.ident]) for wanted in plan)
        left_s = last_due_ms / 1000 - time.time() + PATIENCE_S
        deadline = time.monotonic() + left_s
        with progress("records arrived", len(plan)) as show:
            while len(self._arrivals) < len(plan) and time.monotonic() < deadline:
                self._read_until(reader, time.monotonic() + 0.2)
                show(len(self._arrivals))
        self._tell(f"{len(self._arrivals)} of {len(plan)} records have arrived")
        self._read_until(reader, time.monotonic() + QUIET_S)

    def _read_until(self, reader: Consumer, end_monotonic: float) -> None:
        while (left_s := end_monotonic - time.monotonic()) > 0:
            message = reader.poll(left_s)
            if message is None or message.error() is not None:
                continue
            if message.topic() == self._outcome_topic:
                self._outcomes.append(message.value() or b"")
            else:
                self._arrivals.append(_arrival(message))

    def _expect_clean_stop(self, proxy: ProxyProcess) -> None:
        if code := proxy.stop():
            raise DemoFailed(
                f"The proxy answered SIGTERM with exit code {code}.", proxy.last_words()
            )

    def _judge_outcomes(self, plan: list[Wanted]) -> Verdict:
        """Each dead letter has exactly one outcome, and nothing else has one."""
        wanted = sum(one.reason is not None for one in plan)
        found = sum(OUTCOME.encode() in outcome for outcome in self._outcomes)
        verdict = Verdict(sent=wanted, arrived=len(self._outcomes))
        verdict.missing = max(0, wanted - found)
        verdict.twice = max(0, len(self._outcomes) - wanted)
        return verdict

    def _tell(self, text: str) -> None:
        say(f"{time.monotonic() - self._started:5.1f} s  {text}")


def _receipt(wanted: Wanted, sent: dict[str, Sent], settings: Settings) -> Any:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise explain(error, settings)
        origin = f"{message.topic()}/{message.partition()}/{message.offset()}"
        sent[wanted.ident] = Sent(origin, message.timestamp()[1])

    return note


def _arrival(message: Message) -> Arrival:
    return Arrival(
        str(message.topic()),
        int(message.partition() or 0),
        message.key(),
        message.value(),
        headers_of(message),
        message.timestamp()[1],
        wall_clock_ms(),
    )


def _show(verdicts: dict[str, Verdict]) -> None:
    columns = [
        "records",
        "sent",
        "arrived",
        "missing",
        "twice",
        "early",
        "altered",
        "late p50",
        "max",
    ]
    say_table(columns, [_row(name, verdict) for name, verdict in verdicts.items()])


def _row(name: str, verdict: Verdict) -> list[str]:
    late = verdict.lateness_ms
    numbers = [verdict.sent, verdict.arrived, verdict.missing]
    numbers += [verdict.twice, verdict.early, verdict.altered]
    ends = [f"{median(late):.0f} ms", f"{max(late)} ms"] if late else ["", ""]
    return [name, *map(str, numbers), *ends]


def _summary(total: Verdict) -> dict[str, Any]:
    return {
        "sent": total.sent,
        "arrived": total.arrived,
        "missing": total.missing,
        "twice": total.twice,
        "early": total.early,
        "altered": total.altered,
        "lateness_ms": {"p50": median(total.lateness_ms), "max": max(total.lateness_ms)},
    }
