"""Generator and reader for RocketMQ: `RocketDriver.java`, compiled and run on the locked JRE."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import numpy as np

from proxy.embedded.jars import java
from proxy.embedded.server import GuardedProcess
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import Load, Loaded
from tools.benchmarks.peers.rocketmq_jars import rocketmq_jars
from tools.benchmarks.processes import Announce
from tools.benchmarks.reader import Arrivals, ReadOrder

SOURCE = Path(__file__).with_name("RocketDriver.java")
ARRIVAL = np.dtype([("sequence", ">i8"), ("due_ms", ">i8"), ("received_ms", ">f8")])
JVM = ("-Xms512m", "-Xmx2g", "-XX:+UseParallelGC", "-XX:-UsePerfData")


@dataclass(frozen=True, slots=True)
class RocketDriver:
    address: str
    folder: Path

    def compile(self) -> None:
        """Compile the driver into the folder. All other methods need the compiled driver."""
        compiler = ["org.eclipse.jdt.internal.compiler.batch.Main", "-21", "-nowarn"]
        command = [str(java()), "-cp", _classpath(), *compiler, "-cp", _classpath()]
        classes = ["-d", str(self._classes), str(SOURCE)]
        done = subprocess.run(
            [*command, *classes], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise BenchmarkError(f"{SOURCE.name} does not compile:\n{done.stdout}{done.stderr}")

    def create(self, topic: str, queues: int) -> None:
        with self._lines("create", topic, str(queues)) as lines:
            self._next(lines)

    def send(self, announce: Announce, load: Load) -> Loaded:
        """Send a whole load, and resend refused records. A Job runs this in its own process."""
        low_ms, high_ms = load.delay_ms
        numbers = (load.count, low_ms, high_ms, load.anchor_ms or 0, load.rate_per_s or 0)
        more = (load.value_bytes, load.seed)
        with self._lines("send", load.target, *map(str, (*numbers, *more))) as lines:
            self._next(lines)
            announce()
            count, started_ms, ended_ms, cpu_s = self._next(lines)
        return Loaded(int(count), float(started_ms), float(ended_ms), float(ended_ms), float(cpu_s))

    def read(self, announce: Announce, order: ReadOrder) -> Arrivals:
        with TemporaryDirectory(dir=self.folder) as folder:
            written = Path(folder) / "arrivals"
            asked = (order.topic, str(order.count), str(order.deadline_s), str(written))
            with self._lines("read", *asked) as lines:
                self._next(lines)
                announce()
                (cpu_s,) = self._next(lines)
            came = np.fromfile(written, ARRIVAL)
        return Arrivals(
            sequence=came["sequence"].astype(np.int64),
            due_ms=came["due_ms"].astype(np.int64),
            received_ms=came["received_ms"].astype(np.float64),
            cpu_s=float(cpu_s),
        )

    def wait_until_timer_took_all(self, broker: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        with self._lines("behind", broker) as lines:
            while self._next(lines) != ["0"]:
                if time.monotonic() > deadline_s:
                    raise BenchmarkError(f"RocketMQ's timer was behind after {timeout_s:.0f} s.")

    @contextmanager
    def _lines(self, *arguments: str) -> Iterator[TextIO]:
        mode, *rest = arguments
        places = f"{self._classes}{os.pathsep}{_classpath()}"
        command = [str(java()), *JVM, *system_properties(self.folder), "-cp", places]
        reading, writing = os.pipe()
        with os.fdopen(reading) as lines, self._log.open("ab") as errors:
            with os.fdopen(writing, "wb") as output:
                process = GuardedProcess(
                    [*command, "RocketDriver", mode, self.address, *rest],
                    stdout=output,
                    stderr=errors,
                )
            try:
                yield lines
            finally:
                process.kill()

    def _next(self, lines: TextIO) -> list[str]:
        line = lines.readline()
        if not line:
            raise BenchmarkError(
                f"The driver ended without a message:\n{self._log.read_text()[-3000:]}"
            )
        return line.split()

    @property
    def _classes(self) -> Path:
        return self.folder / "classes"

    @property
    def _log(self) -> Path:
        return self.folder / "driver.log"


def system_properties(folder: Path) -> tuple[str, ...]:
    """Return properties for RocketMQ's JVMs. They keep all of RocketMQ's files in the folder."""
    return (
        f"-Duser.home={folder}",
        f"-Drocketmq.client.localOffsetStoreDir={folder / 'offsets'}",
        f"-Drmq.logback.configurationFile={folder / 'logback.xml'}",
    )


def _classpath() -> str:
    return os.pathsep.join(map(str, rocketmq_jars()))
