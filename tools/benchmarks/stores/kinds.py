"""What is compared: kinds of store, each with bodies on its disk and with stubs instead."""

from dataclasses import dataclass

from proxy.errors import ExtraMissing, require_store
from storage.options import StoreKind
from tools.benchmarks.stores.scenarios import MIDDLE

YARDSTICK = "wheel"


@dataclass(frozen=True, slots=True)
class Kind:
    """`has_stubs`: as `bodies: kafka` keeps records; a stub has a few bytes whatever it stands for,
    so it is measured for bodies of one size only. Reading back from Kafka is not part of it."""

    title: str
    store: StoreKind
    has_stubs: bool = False

    def takes(self, body_bytes: int) -> bool:
        """Whether it is measured with bodies of this size."""
        return not self.has_stubs or body_bytes == MIDDLE


KINDS = {
    YARDSTICK: Kind("wheel", "wheel"),
    "rocksdb": Kind("rocksdb", "rocksdb"),
    "wheel-kafka": Kind("wheel, kafka", "wheel", has_stubs=True),
    "rocksdb-kafka": Kind("rocksdb, kafka", "rocksdb", has_stubs=True),
}


def why_missing(name: str) -> str | None:
    """A sentence, where the packages of this kind are not installed."""
    try:
        require_store(KINDS[name].store)
    except ExtraMissing as missing:
        return str(missing)
    return None
