"""The folder of one embedded broker: its lock, its log, its settings, Kafka's own files.

broker.lock         held while a broker uses the folder
broker.log          what the broker says; broker.log.1 is the run before
server.properties   written at every start
kafka.version       the version that wrote the data
broker.fenced       there when the controller no longer counts on the last broker
kafka/              Kafka's log directory
tmp/                native libraries the JVM unpacks
"""

import base64
import fcntl
import os
import shutil
import time
import uuid
from pathlib import Path

from proxy.embedded.errors import BrokerFailed, DataFromNewerKafka
from proxy.errors import DataDirInUse

LOCK_WAIT_S = 3.0
LEAST_FREE_BYTES = 200 << 20


class DataFolder:
    """Paths and states of the folder; nothing is touched before `claim`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.kafka = self.root / "kafka"
        self.log = self.root / "broker.log"
        self.properties = self.root / "server.properties"
        self.temporary = self.root / "tmp"
        self._version = self.root / "kafka.version"
        self._fenced = self.root / "broker.fenced"
        self._lock_fd: int | None = None

    def claim(self, version: str) -> int:
        """Take the folder for this process; returns the descriptor of its lock.

        A broker that is just ending is waited for. Raises `DataDirInUse`, `DataFromNewerKafka`,
        `BrokerFailed` when the disk is (nearly) full or cannot be written.
        """
        try:
            self.temporary.mkdir(parents=True, exist_ok=True)
            self._lock_fd = self._locked()
        except OSError as error:
            raise BrokerFailed(
                f"The data folder {self.root} cannot be written: {error}.",
                "Make it writable, or choose another.",
            ) from error
        try:
            self._require_room()
            self._require_version(version)
        except BaseException:
            self.release()
            raise
        return self._lock_fd

    def release(self) -> None:
        """Give the folder back; harmless when it is not held."""
        if self._lock_fd is not None:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = None

    def cluster_id(self) -> str | None:
        """The id of the cluster that lives here; None before the folder was formatted."""
        path = self.kafka / "meta.properties"
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        pairs = (line.partition("=") for line in lines)
        return next((value for name, _, value in pairs if name == "cluster.id"), None)

    @property
    def may_be_registered(self) -> bool:
        """Whether the controller may still count on a broker that is gone."""
        return self.cluster_id() is not None and not self._fenced.exists()

    def mark_fenced(self) -> None:
        """Note that the controller has given up the last broker."""
        self._fenced.touch()

    def mark_registered(self) -> None:
        """Note that a broker is about to register."""
        self._fenced.unlink(missing_ok=True)

    def rotate_log(self) -> None:
        """Keep the log of the run before, and no more."""
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the broker's log."""
        if not self.log.exists():
            return []
        return self.log.read_text("utf-8", errors="replace").splitlines()[-lines:]

    def mark_version(self, version: str) -> None:
        """Note which Kafka writes here from now on."""
        self._version.write_text(version + "\n", "utf-8")

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

    def _require_room(self) -> None:
        free_bytes = shutil.disk_usage(self.root).free
        if free_bytes < LEAST_FREE_BYTES:
            raise BrokerFailed(
                f"Only {free_bytes >> 20} MB are free where the data folder {self.root} is.",
                f"Make room ({LEAST_FREE_BYTES >> 20} MB at least), or choose another folder.",
            )

    def _require_version(self, ours: str) -> None:
        found = self._version.read_text("utf-8").strip() if self._version.exists() else ours
        if _as_numbers(found) > _as_numbers(ours):
            raise DataFromNewerKafka(self.root, found, ours)


def new_cluster_id() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base64, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
