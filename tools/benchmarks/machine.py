"""Description of the machine that the figures were measured on."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import confluent_kafka


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    kafka: str
    confluent_kafka: str
    librdkafka: str


def describe(kafka_version: str) -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        kafka=kafka_version,
        confluent_kafka=version("confluent-kafka"),
        librdkafka=confluent_kafka.libversion()[0],
    )


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
