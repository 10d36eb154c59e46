"""Peer etf1/kafka-message-scheduler, a Go module that is built here if `go` is installed."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from proxy.embedded import EmbeddedBroker
from proxy.embedded.jars import cache_folder
from proxy.embedded.server import pick_free
from tools.benchmarks import clients
from tools.benchmarks.keys import read_keys
from tools.benchmarks.loads import LINGER_MS, Load, Loaded, send_through
from tools.benchmarks.peers.on_kafka import NAME, OnKafka
from tools.benchmarks.peers.scheduler import SCHEDULER, STOPPED_WITHIN_S, PeerMissing
from tools.benchmarks.processes import Announce, Job
from tools.benchmarks.reader import Arrivals, ReadOrder, read

MODULE: Final = "github.com/etf1/kafka-message-scheduler"
BUILD_LIMIT_S: Final = 600
HOST: Final = "127.0.0.1"
SETTINGS: Final = {"LOG_LEVEL": "error", "SCHEDULE_GRACE_INTERVAL": "600"}
"""Without this grace time (s), the scheduler drops records that were due while it was down."""


def version() -> str:
    """Build the scheduler if needed and return its version. Raise `PeerMissing` if it cannot be
    built."""
    go = shutil.which("go")
    if go is None:
        raise PeerMissing("etf1's scheduler is left out: there is no `go` on the PATH to build it.")
    if not _binary().exists():
        _build(go)
    told = subprocess.run(
        [go, "version", "-m", _binary()], capture_output=True, text=True, check=True
    )
    return next(line.split()[2] for line in told.stdout.splitlines() if "\tmod\t" in line)


def _build(go: str) -> None:
    environment = {**os.environ, "GOBIN": str(_binary().parent)}
    try:
        done = subprocess.run(
            [go, "install", f"{MODULE}/cmd/kafka@latest"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(
            f"etf1's scheduler is left out: no build in {BUILD_LIMIT_S} s."
        ) from error
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1].strip()
        raise PeerMissing(f"etf1's scheduler is left out: `go install` says: {why}")


def _binary() -> Path:
    return cache_folder().parent / "etf1" / "kafka"


def translated(key: bytes, headers: clients.Headers) -> tuple[str, clients.Headers]:
    """Return the key and headers that this scheduler needs for the same delivery. This scheduler
    has due times in whole seconds. They are rounded up, because no record may be early. The
    scheduler takes the key of a request as the id of a schedule, so each request has its own
    key."""
    asked: dict[str, bytes] = dict(headers)  # type: ignore[arg-type]
    target = asked["timer-topic"].decode()
    due_s = -(-int(asked["timer-deliver-at"]) // 1000)
    request: clients.Headers = [
        ("scheduler-epoch", str(due_s)),
        ("scheduler-target-topic", target),
        ("scheduler-target-key", key),
    ]
    return f"{target}-{read_keys([key])['sequence'][0]}", request


class TranslatingProducer(Producer):
    """Producer that translates requests for the proxy into requests for etf1's scheduler."""

    def produce(  # type: ignore[override]
        self, topic: str, value: bytes, key: bytes, headers: clients.Headers
    ) -> None:
        name, request = translated(key, headers)
        super().produce(topic, value, name, headers=request)


def send(announce: Announce, load: Load) -> Loaded:
    settings = clients.producing(load.bootstrap_servers, {"linger.ms": LINGER_MS})
    return send_through(TranslatingProducer(settings), announce, load)


class Etf1(OnKafka):
    """The built scheduler with a compacted schedule topic, as its README requires."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        super().__init__(bootstrap_servers, {"cleanup.policy": "compact"})
        history = f"{NAME}.history"
        self.create(history)
        self._log = folder / "etf1.log"
        self._environment = {
            **SETTINGS,
            "BOOTSTRAP_SERVERS": bootstrap_servers,
            "SCHEDULES_TOPICS": self.ingress,
            "HISTORY_TOPIC": history,
            "METRICS_ADDR": f"{HOST}:{pick_free(HOST)}",
            "SERVER_ADDR": f"{HOST}:{pick_free(HOST)}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> Mapping[str, int]:
        assert self._process is not None, "it was never started"
        return {SCHEDULER: self._process.pid, "broker": self._broker_pid}

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [_binary()], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_ready(self) -> None:
        """Return at once: the scheduler has no readiness check, and its topic buffers records."""

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOPPED_WITHIN_S)
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def send(self, load: Load) -> Job[Loaded]:
        return Job(send, load)

    def read(self, order: ReadOrder) -> Job[Arrivals]:
        """Read deliveries. They do not have the headers that the proxy adds."""
        return Job(read, replace(order, stamped=False))

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Return False: the scheduler does not report its progress."""
        return False


@contextmanager
def etf1(folder: Path) -> Iterator[Etf1]:
    with EmbeddedBroker(data_dir=folder / "broker", port=0) as broker:
        scheduler = Etf1(broker.bootstrap_servers, folder)
        try:
            scheduler.start()
            yield scheduler
        finally:
            scheduler.kill()
