"""Embedded broker of the tests with another Kafka version than the pinned one."""

from __future__ import annotations

import os
from typing import Final

import pytest

from proxy.embedded import jars as jar_cache
from proxy.embedded.jars import Jar, jars_of, kafka_version
from tools.lock_jars import ROOTS, write_lock

NAMED_BY: Final = "KAFKA_VERSION"
FROM_KAFKA_4: Final = pytest.mark.skipif(
    os.environ.get(NAMED_BY, "").startswith("3."), reason="brokers offer KIP-848 from 4.0 on"
)


def use_named_kafka() -> None:
    """Use `KAFKA_VERSION` for brokers of this process, if it is set. Commands in other processes
    (`broker`, `dev`) keep the pinned version."""
    version = os.environ.get(NAMED_BY)
    if version and version != kafka_version():
        jars = _jars(version)
        jar_cache.locked_jars = lambda: jars


def _jars(version: str) -> tuple[Jar, ...]:
    lock = jar_cache.cache_folder() / f"kafka-{version}.lock"
    if not lock.exists():
        lock.parent.mkdir(parents=True, exist_ok=True)
        arriving = lock.with_suffix(f".{os.getpid()}")
        roots = [root.replace(kafka_version(), version) for root in ROOTS]
        write_lock(arriving, f"Kafka {version}, for tests", "make test-kafka", roots)
        arriving.replace(lock)
    return jars_of(lock.read_text("utf-8"))
