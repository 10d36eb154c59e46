"""RocketMQ 5 as a peer. Its name server and its broker run from jars that a lock file pins. It
keeps timers in a timer wheel on disk."""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from proxy.embedded.jars import CacheUnusable, JarsUnavailable, java
from proxy.embedded.server import GuardedProcess, pick_free
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import Load, Loaded
from tools.benchmarks.peers.rocketmq_driver import RocketDriver, system_properties
from tools.benchmarks.peers.rocketmq_jars import rocketmq_jars, rocketmq_version
from tools.benchmarks.peers.scheduler import SCHEDULER, PeerMissing, java_pid
from tools.benchmarks.processes import Job
from tools.benchmarks.reader import Arrivals, ReadOrder
from tools.benchmarks.topics import PARTITIONS

HOST: Final = "127.0.0.1"
READY_S: Final = 90
NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"
SCHEDULING_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:-UsePerfData")
NAMING_JVM: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
OPENED: Final = (
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
)
SETTINGS: Final = {
    "flushDiskType": "ASYNC_FLUSH",
    "timerMaxDelaySec": 604_800,
    "messageIndexEnable": "false",
    "maxTransferCountOnMessageInMemory": 1_000,
    "maxTransferBytesOnMessageInMemory": 4 << 20,
    "waitTimeMillsInSendQueue": 5_000,
    "diskMaxUsedSpaceRatio": 95,
}
LOGBACK: Final = """<configuration>
  <appender name="err" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="ERROR"><appender-ref ref="err"/></root>
</configuration>
"""


def version() -> str:
    """Fetch the jars if needed and return the version. Raise `PeerMissing` if that fails."""
    try:
        rocketmq_jars()
    except (JarsUnavailable, CacheUnusable) as error:
        raise PeerMissing(f"RocketMQ is left out: {error}") from error
    return rocketmq_version()


class RocketMq:
    """A name server and one broker. `precision_ms` is the precision of its timer wheel."""

    ingress = "none: a delayed message is sent to its own topic"

    def __init__(self, folder: Path, precision_ms: int) -> None:
        self._folder = folder
        self._port, naming_port = (pick_free(HOST) for _ in range(2))
        self.address = f"{HOST}:{naming_port}"
        self._driver = RocketDriver(self.address, folder)
        self._processes: dict[str, GuardedProcess] = {}
        (folder / "logback.xml").write_text(LOGBACK)
        self._write("naming.conf", {"listenPort": naming_port, "bindAddress": HOST})
        self._write("broker.conf", {**SETTINGS, **self._places(), "timerPrecisionMs": precision_ms})

    def open(self) -> None:
        self._driver.compile()
        self._launch(NAME_SERVER, "naming.conf", NAMING_JVM)
        self.start()
        self.wait_ready()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()

    @property
    def pids(self) -> Mapping[str, int]:
        return {SCHEDULER: java_pid(BROKER), "name server": java_pid(NAME_SERVER)}

    def start(self) -> None:
        self._launch(BROKER, "broker.conf", (*SCHEDULING_JVM, *OPENED))

    def wait_ready(self) -> None:
        deadline_s = time.monotonic() + READY_S
        while "boot success" not in (said := self._log(BROKER).read_text("utf-8", "replace")):
            if time.monotonic() > deadline_s or self._processes[BROKER].exit_code is not None:
                raise BenchmarkError(f"RocketMQ's broker did not boot:\n{said[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        self._processes[BROKER].stop()

    def kill(self) -> None:
        self._processes[BROKER].kill()

    def create(self, topic: str) -> None:
        self._driver.create(topic, PARTITIONS)

    def send(self, load: Load) -> Job[Loaded]:
        return Job(self._driver.send, load)

    def read(self, order: ReadOrder) -> Job[Arrivals]:
        return Job(self._driver.read, order)

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Wait until the timer has put all sent records into its wheel."""
        self._driver.wait_until_timer_took_all(f"{HOST}:{self._port}", timeout_s)
        return True

    def _places(self) -> dict[str, object]:
        store = self._folder / "store"
        return {
            "brokerName": "benchmark",
            "brokerIP1": HOST,
            "bindAddress": HOST,
            "listenPort": self._port,
            "haListenPort": pick_free(HOST),
            "namesrvAddr": self.address,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
        }

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self._folder / name).write_text("".join(lines))

    def _launch(self, main_class: str, settings: str, jvm: tuple[str, ...]) -> None:
        classpath = ":".join(map(str, rocketmq_jars()))
        properties = system_properties(self._folder)
        command = [str(java()), *jvm, *properties, "-cp", classpath, main_class]
        with self._log(main_class).open("wb") as log:
            self._processes[main_class] = GuardedProcess(
                [*command, "-c", str(self._folder / settings)],
                environment={"ROCKETMQ_HOME": str(self._folder)},
                stdout=log,
                stderr=log,
            )

    def _log(self, main_class: str) -> Path:
        return self._folder / f"{main_class.rpartition('.')[2]}.log"


@contextmanager
def rocketmq(folder: Path, precision_ms: int) -> Iterator[RocketMq]:
    made = RocketMq(folder, precision_ms)
    try:
        made.open()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder / "store", ignore_errors=True)
