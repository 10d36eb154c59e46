"""The server process of a Kafka node."""

import base64
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from signal import Signals
from typing import IO

from proxy.embedded import watchdog
from proxy.embedded.jars import ensure_jars, java, kafka_version
from proxy.errors import DataDirInUse, PortTaken, ProxyError

# Errors of the embedded broker, recognised in its log.

CHOOSE_PORT = "Stop the program there, or choose another port (--port; 0 picks one)."
SHOWN_LINES = 15

_NO_MEMORY = re.compile(r"OutOfMemoryError|insufficient memory|Could not reserve enough space")
_PORT = re.compile(r"Address already in use|BindException")


class DataFromNewerKafka(ProxyError):
    """A later Kafka version wrote the data folder."""

    def __init__(self, data_dir: Path, found: str, ours: str) -> None:
        super().__init__(
            f"The data folder {data_dir} was made by Kafka {found}; this is Kafka {ours}.",
            "Choose another data folder, or delete this one with its contents.",
        )


class BrokerFailed(ProxyError):
    """The embedded broker did not start, or ended by itself."""


def explain(what: str, tail: list[str], data_dir: Path, host: str, port: int) -> ProxyError:
    """Return the error for a broker that ended, from the end of its log."""
    text = "\n".join(tail)
    if _PORT.search(text):
        return PortTaken(host, port, CHOOSE_PORT)
    if "Failed to acquire lock on file" in text:
        return DataDirInUse(str(data_dir))
    if "No space left on device" in text:
        return BrokerFailed(
            f"{what}: the disk under {data_dir} is full.",
            "Free disk space, or choose another folder.",
        )
    if _NO_MEMORY.search(text):
        return BrokerFailed(
            f"{what}: not enough memory.", "Free memory, or give the broker less heap."
        )
    shown = "\n".join(tail[-SHOWN_LINES:]) or "(nothing)"
    return BrokerFailed(f"{what}. Its log in {data_dir} ends with:\n{shown}")


# Ports.

# Outgoing connections use ports from 32768 (Linux) or 49152 (macOS). So they cannot take a port of
# this range while a broker is stopped.
LOWEST, HIGHEST = 20_000, 32_000
# Each process uses every 32nd port. It uses a port again as late as possible, because a stopped
# broker may need its port again.
SHARES = 32


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on `host:port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def pick_free(host: str) -> int:
    """Return a free port. Another program may take it before the caller does."""
    share = _share_of(os.getpid())
    tries = len(range(LOWEST, HIGHEST, SHARES))
    for port in islice(share, tries):
        if is_free(host, port):
            return port
    raise OSError(f"none of {tries} ports tried on {host} is free")


@cache
def _share_of(process_id: int) -> Iterator[int]:
    ports = range(LOWEST + process_id % SHARES, HIGHEST, SHARES)
    return cycle(random.sample(ports, len(ports)))


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Return whether a process accepts connections at `host:port`."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


# Settings of a node that is both broker and controller, and starts quickly.

NODE_ID = 1
COORDINATOR_PARTITIONS = 4
ALONE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": str(COORDINATOR_PARTITIONS),
}
"""Kafka's own topics: one replica, and few partitions, so that they open quickly."""
PROMPT = {
    # A restarted broker waits at most this long until the killed broker's session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A controlled stop leaves partitions without a leader. Transactions that end during
    # this time get no end marker (KAFKA-20734).
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
}
"""Short waits for group members, dead transactions and compaction."""


def server_properties(
    host: str, port: int, controller_port: int, log_dir: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return Kafka's `server.properties`. `overrides` take precedence."""
    identity = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "log.dirs": str(log_dir),
    }
    return {**identity, **ALONE, **PROMPT, **overrides}


def alone_as_controller(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties of a controller only, which fences a silent broker after 200 ms."""
    brokers = ("advertised.listeners", "inter.broker.listener.name")
    kept = {name: value for name, value in properties.items() if name not in brokers}
    listeners = properties["listeners"].split(",")
    return {
        **kept,
        "process.roles": "controller",
        "listeners": next(one for one in listeners if one.startswith("CONTROLLER:")),
        "broker.heartbeat.interval.ms": "100",
        "broker.session.timeout.ms": "200",
    }


def as_text(properties: Mapping[str, str]) -> str:
    """Format a Java properties file."""
    escaped = {
        name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()
    }
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


# The files in an embedded broker's folder. A broker locks broker.lock while it uses the folder.
# The JVM writes broker.log. The previous JVM wrote broker.log.1. The file kafka.version names the
# Kafka version that wrote the data. The file broker.fenced exists if the controller has fenced the
# previous broker.

LOCK_WAIT_S = 3.0
LEAST_FREE_BYTES = 200 << 20


class DataFolder:
    """Paths and state of the folder. Nothing is written before `claim`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.kafka = self.root / "kafka"
        self.log = self.root / "broker.log"
        self.properties = self.root / "server.properties"
        self.temporary = self.root / "tmp"
        self.version = self.root / "kafka.version"
        self.fenced = self.root / "broker.fenced"
        self.lock_fd: int | None = None

    def claim(self, version: str) -> None:
        """Lock the folder. Wait for a broker that is ending.

        Raises DataDirInUse, DataFromNewerKafka, or BrokerFailed for a full or read-only disk.
        """
        try:
            self.temporary.mkdir(parents=True, exist_ok=True)
            self.lock_fd = self._locked()
        except OSError as error:
            raise BrokerFailed(
                f"The data folder {self.root} cannot be written: {error}.",
                "Make it writable, or choose another.",
            ) from error
        try:
            free_bytes = shutil.disk_usage(self.root).free
            if free_bytes < LEAST_FREE_BYTES:
                raise BrokerFailed(
                    f"Only {free_bytes >> 20} MB are free on the disk of {self.root}.",
                    f"Free disk space ({LEAST_FREE_BYTES >> 20} MB at least), or choose another "
                    "folder.",
                )
            found = self.version.read_text("utf-8").strip() if self.version.exists() else version
            if _as_numbers(found) > _as_numbers(version):
                raise DataFromNewerKafka(self.root, found, version)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self.lock_fd is not None:
            fcntl.flock(self.lock_fd, fcntl.LOCK_UN)
            os.close(self.lock_fd)
            self.lock_fd = None

    def cluster_id(self) -> str | None:
        path = self.kafka / "meta.properties"
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        pairs = (line.partition("=") for line in lines)
        return next((value for name, _, value in pairs if name == "cluster.id"), None)

    @property
    def may_be_registered(self) -> bool:
        """Return whether the controller may still believe that an ended broker is running."""
        return self.cluster_id() is not None and not self.fenced.exists()

    def rotate_log(self) -> None:
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))

    def log_tail(self, lines: int) -> list[str]:
        if not self.log.exists():
            return []
        return self.log.read_text("utf-8", errors="replace").splitlines()[-lines:]

    def _locked(self) -> int:
        descriptor = os.open(self.root / "broker.lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise DataDirInUse(str(self.root)) from None
                time.sleep(0.05)
            else:
                return descriptor


def new_cluster_id() -> str:
    """Return a random id in Kafka's form. Its first byte is 0, so it does not start with a dash."""
    return base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode("ascii").rstrip("=")


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# A child process that never outlives this process.

STOP_TIMEOUT_S = 20


class GuardedProcess:
    """A command that the watchdog runs. Ctrl-C reaches neither the watchdog nor the command."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | int | None = None,
        keep_open: Sequence[int] = (),
    ) -> None:
        script = str(Path(watchdog.__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def wait(self, limit_s: float | None = None) -> int:
        return self._process.wait(limit_s)

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL after STOP_TIMEOUT_S."""
        if self.exit_code is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """End the command by SIGKILL, even if it is frozen."""
        self._process.send_signal(signal.SIGUSR1)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            os.killpg(self._process.pid, number)


# The JVM of one Kafka node over its data folder.

FORMAT_TIMEOUT_S = 60
LISTENS_NOWHERE = ("", 0)
TAIL_LINES = 200
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
LASTING_JVM = ("-server", "-XX:+UseParallelGC", "-XX:-UsePerfData")
LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    # A line for each rolled, cleaned or deleted segment would let the log grow without end.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.log=warn",
)


class KafkaServer:
    """A node in a child process. The child ends with this process, even if this process is killed.

    Call `claim`, `configure` and `launch`, in this order. If the folder is new, call `format` once
    before `launch`.
    """

    def __init__(self, folder: DataFolder, heap_mb: int) -> None:
        self.folder = folder
        self._heap_mb = heap_mb
        self._classpath = ""
        self._process: GuardedProcess | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the JVM exists. It may be frozen."""
        return self._process is not None and self._process.exit_code is None

    def claim(self) -> None:
        self._classpath = ":".join(map(str, ensure_jars()))
        self.folder.claim(kafka_version())

    def configure(self, properties: Mapping[str, str]) -> None:
        self.folder.properties.write_text(as_text(properties), "utf-8")

    def format(self, cluster_id: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"]
        done = subprocess.run(
            [str(java()), *QUICK_JVM, "-cp", self._classpath, *tool, str(self.folder.properties)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            output = (done.stdout + done.stderr).splitlines()
            what = f"Kafka could not prepare the data folder {self.folder.root}"
            raise explain(what, output, self.folder.root, *LISTENS_NOWHERE)

    def launch(self, jvm: Sequence[str] = LASTING_JVM) -> None:
        assert self.folder.lock_fd is not None, "the folder is not claimed"
        self.folder.rotate_log()
        command = [
            *(str(java()), *jvm, f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb // 4}m"),
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={self.folder.temporary}",
            *(*LOGGING, "-cp", self._classpath, "kafka.Kafka", str(self.folder.properties)),
        ]
        with self.folder.log.open("wb") as log:
            self._process = GuardedProcess(
                command, stdout=log, stderr=subprocess.STDOUT, keep_open=[self.folder.lock_fd]
            )

    def end_process(self) -> None:
        """Stop the JVM cleanly. The folder stays locked."""
        if self._process is not None:
            self._process.stop()

    def stop(self) -> None:
        """Stop the JVM cleanly and unlock the folder."""
        self.end_process()
        self._forget_process()

    def kill(self) -> None:
        """End the JVM by SIGKILL and unlock the folder."""
        if self._process is not None:
            self._process.kill()
        self._forget_process()

    def signal(self, number: Signals) -> None:
        if self._process is not None:
            self._process.signal(number)

    def _forget_process(self) -> None:
        self._process = None
        self.folder.release()
