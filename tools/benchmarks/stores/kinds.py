"""Kinds of store. Each kind stores bodies on disk, or stubs that stand for bodies in Kafka."""

from dataclasses import dataclass

from proxy.errors import ExtraMissing, require_store
from storage.options import StoreKind
from tools.benchmarks.stores.scenarios import MIDDLE

YARDSTICK = "wheel"


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of store. With `has_stubs`, records are stored as with `bodies: kafka`. A stub has a few
    bytes, however large the body is. So one body size suffices. Reading bodies back from Kafka is
    not included."""

    title: str
    store: StoreKind
    has_stubs: bool = False

    def takes(self, body_bytes: int) -> bool:
        return not self.has_stubs or body_bytes == MIDDLE


KINDS = {
    YARDSTICK: Kind("wheel", "wheel"),
    "rocksdb": Kind("rocksdb", "rocksdb"),
    "wheel-kafka": Kind("wheel, kafka", "wheel", has_stubs=True),
    "rocksdb-kafka": Kind("rocksdb, kafka", "rocksdb", has_stubs=True),
}


def why_missing(name: str) -> str | None:
    try:
        require_store(KINDS[name].store)
    except ExtraMissing as missing:
        return str(missing)
    return None
