"""The shards' folders in a data folder, read from outside; the proxy need not run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.errors import ProxyError, require_store
from proxy.protocol.body import Delivery, LeftInKafka, body_bytes, delivery_of, is_stub
from storage.errors import StorageError
from storage.folder import kind_of
from storage.store import Entry
from storage.tier import FolderReport

_SHARD_FOLDER = re.compile(r"(?P<shard>.+-\d+)@[^.]+")


class NoLocalData(ProxyError):
    """The data folder holds no shard."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"There is no local data in {data_dir.absolute()}.",
            "Name the proxy's folder with --data-dir; a proxy that has just started writes later.",
        )


class LocalDataUnreadable(ProxyError):
    """A shard's folder contradicts itself; the proxy puts it aside and rebuilds it."""


@dataclass(frozen=True, slots=True)
class LocalShard:
    """One ingress partition's folder; `name` is `<topic>-<partition>`."""

    name: str
    folder: Path

    def verify(self) -> FolderReport:
        """Check every file of it; a shard that has not been written yet is sound and empty.

        Raises ExtraMissing."""
        self._require_kind()
        from storage.opening import verify

        return verify(self.folder)

    def entries(self) -> Iterator[Delivery | LeftInKafka]:
        """The entries on disk in (due, offset) order. Raises LocalDataUnreadable, ExtraMissing."""
        self._require_kind()
        from storage.opening import dump

        try:
            for row in dump(self.folder):
                yield _opened((row["due_ms"], row["offset"], row["target"], row["body"]))
        except FileNotFoundError:
            return
        except (StorageError, ValueError) as error:
            raise LocalDataUnreadable(
                f"{self.folder} cannot be read: {error}.",
                "If the proxy runs, try again; else start it: it puts a damaged folder aside and "
                "rebuilds it from the broker.",
            ) from None

    def _require_kind(self) -> None:
        if kind := kind_of(self.folder):
            require_store(kind)


def _opened(entry: Entry) -> Delivery | LeftInKafka:
    due_ms, offset, target, body = entry
    if is_stub(body):
        return LeftInKafka(due_ms, offset, target, body_bytes(body))
    return delivery_of(entry)


def local_shards(data_dir: Path) -> list[LocalShard]:
    """All shards of a data folder by name, without those put aside. Raises NoLocalData."""
    shards = []
    for folder in sorted(data_dir.glob("*@*")):
        named = _SHARD_FOLDER.fullmatch(folder.name)
        if named and folder.is_dir():
            shards.append(LocalShard(named["shard"], folder))
    if not shards:
        raise NoLocalData(data_dir)
    return shards
