"""RocketMQ's jars, pinned by a lock file and kept in the user's cache."""

from pathlib import Path
from typing import Final

from proxy.embedded.jars import Jar, cache_folder, ensure_all, jars_of

ROCKETMQ_LOCK: Final = Path(__file__).with_name("rocketmq-jars.lock")
BROKER: Final = "org.apache.rocketmq:rocketmq-broker:"


def rocketmq_jars() -> list[Path]:
    """Fetch missing jars. Return the classpath of broker, name server, client and compiler."""
    return ensure_all(f"RocketMQ {rocketmq_version()}", _locked())


def are_rocketmq_jars_cached() -> bool:
    return all(jar.is_whole(cache_folder()) for jar in _locked())


def rocketmq_version() -> str:
    coordinates = (jar.coordinates for jar in _locked())
    return next(name.removeprefix(BROKER) for name in coordinates if name.startswith(BROKER))


def _locked() -> tuple[Jar, ...]:
    return jars_of(ROCKETMQ_LOCK.read_text("utf-8"))
