"""The JVM of one Kafka node over its data folder: formatted, launched, ended."""

import subprocess
from collections.abc import Mapping, Sequence
from signal import Signals

from proxy.embedded.data_folder import DataFolder
from proxy.embedded.errors import explain
from proxy.embedded.guarded_process import GuardedProcess
from proxy.embedded.java.jar_cache import ensure_jars
from proxy.embedded.java.jre import java
from proxy.embedded.java.locked_jars import kafka_version
from proxy.embedded.server_properties import as_text

FORMAT_TIMEOUT_S = 60
LISTENS_NOWHERE = ("", 0)
TAIL_LINES = 200
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
LASTING_JVM = ("-server", "-XX:+UseParallelGC", "-XX:-UsePerfData")
LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    # One line per segment rolled, cleaned or deleted would let the log grow without end.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.log=warn",
)


class KafkaServer:
    """A node as a process; the JVM dies with this one, even when this one is killed.

    `claim` the folder, `configure`, `format` once in the folder's life, then `launch`.
    """

    def __init__(self, folder: DataFolder, heap_mb: int) -> None:
        self.folder = folder
        self._heap_mb = heap_mb
        self._classpath = ""
        self._lock_fd: int | None = None
        self._process: GuardedProcess | None = None

    @property
    def is_running(self) -> bool:
        """Whether the JVM is there (a frozen one is)."""
        return self._process is not None and self._process.exit_code is None

    def claim(self) -> None:
        """Find the jars and take the folder; raises as `ensure_jars` and `DataFolder.claim` do."""
        self._classpath = ":".join(map(str, ensure_jars()))
        self._lock_fd = self.folder.claim(kafka_version())

    def configure(self, properties: Mapping[str, str]) -> None:
        """The server properties of the next launch."""
        self.folder.properties.write_text(as_text(properties), "utf-8")

    def format(self, cluster_id: str) -> None:
        """Make the folder that of a node of this cluster; raises `BrokerFailed` and its like."""
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
        """Start the JVM and return at once; the log of the run before is kept."""
        assert self._lock_fd is not None, "the folder is not claimed"
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
                command, stdout=log, stderr=subprocess.STDOUT, keep_open=[self._lock_fd]
            )

    def end_process(self) -> None:
        """Stop the JVM cleanly (a second or so); the folder stays claimed."""
        if self._process is not None:
            self._process.stop()

    def stop(self) -> None:
        """Stop cleanly and give the folder back; harmless when it does not run."""
        self.end_process()
        self._forget_process()

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data folder stays for the next launch."""
        if self._process is not None:
            self._process.kill()
        self._forget_process()

    def signal(self, number: Signals) -> None:
        """Send the JVM a signal: SIGSTOP freezes it, SIGCONT lets it go on."""
        if self._process is not None:
            self._process.signal(number)

    def wait(self) -> bool:
        """Block while the JVM runs; whether one was launched, and not ended by this object."""
        if self._process is None:
            return False
        self._process.wait()
        return True

    def _forget_process(self) -> None:
        self._process = None
        self._lock_fd = None
        self.folder.release()
