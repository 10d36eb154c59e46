"""Plays the demo: broker, proxy, records, a SIGKILL in the middle, and all that comes of it."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message

from proxy.cli.kafka.arrivals import open_consumer
from proxy.cli.kafka.ingress_writer import ingress_producer, origin_of
from proxy.cli.terminal.options import settings_for_embedded
from proxy.cli.terminal.output import progress, say
from proxy.cli.trial.demo.audit_process import AuditProcess
from proxy.cli.trial.demo.evidence import Evidence, Sent
from proxy.cli.trial.demo.group_result import GroupResult, group_results
from proxy.cli.trial.demo.plan import Step, Wanted, plain_plan
from proxy.cli.trial.demo.stories import CHECKS, ENVIRONMENT, TARGETS, story_plan
from proxy.cli.trial.dev import make_topics
from proxy.cli.trial.proxy_process import ProxyProcess, proxy_environment
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.embedded import EmbeddedBroker
from proxy.embedded.ports import pick_free
from proxy.errors import ProxyError
from proxy.extras import lacking
from proxy.kafka.access.broker_errors import explain

SEED = 20_261_121
READY_LIMIT_S = 60.0
SOON_S = 2.0
KILL_AFTER_S = 8.0
PATIENCE_S = 30.0
QUIET_S = 3.0


class DemoFailed(ProxyError):
    """The demo could not be played to its end."""


class Play:
    """One play in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.plan: list[Wanted] = []
        self._folder = folder
        self._started = time.monotonic()
        self._sent: dict[str, Sent] = {}

    @contextmanager
    def play(self) -> Iterator[tuple[dict[str, GroupResult], AuditProcess | None]]:
        """Start all, send, kill, restart, wait; what came of each group of records.

        Besides, the audit under way, which needs the broker: it is gone when this is left. None
        where Spark is not installed.
        """
        self._tell("starting a Kafka broker")
        with EmbeddedBroker(self._folder / "broker") as broker:
            settings = settings_for_embedded(broker.bootstrap_servers)
            stamped = {"message.timestamp.type": "LogAppendTime"}
            make_topics(settings, dict.fromkeys([*TARGETS, CHECKS], stamped))
            audits = nullcontext() if lacking("spark") else AuditProcess(settings, self._folder)
            with audits as audit:
                self._play_for(settings, audit)
                yield self._results(), audit

    def _play_for(self, settings: Settings, audit: AuditProcess | None) -> None:
        own = settings.topics
        read = [*TARGETS, CHECKS, own.dead_letters, own.outcomes, own.ingress]
        with (
            self._proxy(settings) as proxy,
            closing(open_consumer(settings, *read, from_beginning=True)) as reader,
        ):
            self._settings, self._reader = settings, reader
            self._evidence = Evidence(settings.topics, CHECKS)
            self._producer = ingress_producer(settings)
            proxy.await_ready(READY_LIMIT_S)
            self.plan = [*plain_plan(settings, wall_clock_ms(), SEED), *story_plan()]
            self._perform(proxy, audit)

    def _perform(self, proxy: ProxyProcess, audit: AuditProcess | None) -> None:
        """The steps, in order."""
        self._send(Step.FIRST, "broker and proxy are cold")
        self._await([wanted.ident for wanted in self.plan if wanted.step is Step.FIRST])
        self._send(Step.START, "delayed records, half messages, bad ones and more")
        began = time.monotonic()
        self._read_until(began + SOON_S)
        self._send(Step.SOON, "cancels, a replacement, a commit, a rollback")
        self._await([wanted.after for wanted in self.plan if wanted.after is not None])
        self._send(Step.ARRIVED, "a cancel that comes too late")
        self._read_until(began + KILL_AFTER_S)
        self._kill_and_restart(proxy)
        self._read_to_end()
        if audit is not None:
            self._tell("starting the Spark audit, which reads all topics anew")
            audit.start()
        self._tell("stopping the proxy with SIGTERM")
        self._expect_clean_stop(proxy)
        self._read_until(time.monotonic() + QUIET_S)

    def _proxy(self, settings: Settings) -> ProxyProcess:
        admin_port = pick_free("127.0.0.1")
        self._tell(f"starting the proxy; what waits, in a browser: http://127.0.0.1:{admin_port}/")
        environment = proxy_environment(settings, self._folder / "proxy", admin_port)
        log = self._folder / "proxy.log"
        return ProxyProcess({**ENVIRONMENT, **environment}, admin_port, log)

    def _send(self, step: Step, what: str) -> None:
        """Write the records of a step, in random order, and wait for the broker's receipts."""
        records = [wanted for wanted in self.plan if wanted.step is step]
        random.Random(SEED).shuffle(records)
        self._tell(f"sending {len(records)} {'record' if len(records) == 1 else 'records'}: {what}")
        for wanted in records:
            self._producer.produce(
                self._settings.topics.ingress,
                key=wanted.key,
                value=wanted.value,
                headers=list(wanted.all_headers),
                on_delivery=_receipt(wanted, self._sent, self._settings),
            )
        self._producer.flush(PATIENCE_S)
        if missing := [wanted for wanted in records if wanted.ident not in self._sent]:
            raise DemoFailed(f"The broker took all but {len(missing)} of {len(records)} records.")

    def _await(self, idents: Sequence[str]) -> None:
        """Until these have arrived, or have had their time."""
        self._read_until(
            time.monotonic() + PATIENCE_S,
            lambda: set(idents) <= {one.ident for one in self._evidence.arrivals},
        )

    def _kill_and_restart(self, proxy: ProxyProcess) -> None:
        self._tell(f"{len(self._evidence.arrivals)} records have arrived; SIGKILL to the proxy")
        proxy.kill()
        self._send(Step.DOWN, "a cancel and a commit, while the proxy is down")
        proxy.start()
        self._read_until(time.monotonic() + READY_LIMIT_S, proxy.is_ready)
        self._tell("the proxy is back and has caught up")

    def _read_to_end(self) -> None:
        """Until all have ended, or have had their time; then a while longer, for doubles."""
        sent = self._sent
        last_due_ms = max(one.due_when_sent(sent[one.ident].timestamp_ms) for one in self.plan)
        deadline = time.monotonic() + last_due_ms / 1000 - time.time() + PATIENCE_S
        missing = wanted = _marks(self.plan)
        with progress("records arrived, outcomes, check-backs", wanted) as show:
            while missing and time.monotonic() < deadline:
                self._read_until(time.monotonic() + 0.2)
                missing = sum(result.missing for result in self._results().values())
                show(wanted - missing)
        arrivals, outcomes = self._evidence.arrivals, self._evidence.outcomes
        self._tell(f"{len(arrivals)} records have arrived, {len(outcomes)} ended otherwise")
        self._read_until(time.monotonic() + QUIET_S)

    def _results(self) -> dict[str, GroupResult]:
        return group_results(self.plan, self._sent, self._evidence)

    def _read_until(
        self, end_monotonic: float, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        reader: Consumer = self._reader
        while (left_s := end_monotonic - time.monotonic()) > 0 and not is_over():
            message = reader.poll(min(left_s, 0.2))
            if message is not None and message.error() is None:
                self._evidence.note(message)

    def _expect_clean_stop(self, proxy: ProxyProcess) -> None:
        if code := proxy.stop():
            raise DemoFailed(
                f"The proxy answered SIGTERM with exit code {code}.", proxy.last_words()
            )

    def _tell(self, text: str) -> None:
        say(f"{time.monotonic() - self._started:5.1f} s  {text}")


def _marks(plan: Sequence[Wanted]) -> int:
    """How many records are to be seen, in targets, dead letters, outcomes and check-backs."""
    return sum(one.arrives + len(one.ends) + len(one.checks_ms) for one in plan)


def _receipt(wanted: Wanted, sent: dict[str, Sent], settings: Settings) -> Any:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise explain(error, settings)
        sent[wanted.ident] = Sent(origin_of(message), message.timestamp()[1])

    return note
