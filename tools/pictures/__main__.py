"""Generator of docs/pictures: `python -m tools.pictures`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from confluent_kafka.cimpl import NewTopic

from proxy.embedded import EmbeddedBroker
from tests.support.chromium import chromium
from tests.support.installation.admin_client import api_address, call
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.quiet_clients import admin_client
from tests.support.waiting import wait_for
from tools.benchmarks.accounting import resident
from tools.pictures.order import live
from tools.pictures.pictures import take_all, take_many
from tools.pictures.records import (
    FEW,
    INGRESS,
    PAUSED,
    TOPICS,
    write_troubles,
    write_waiting,
)
from tools.pictures.timings import line, timings

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
PARTITIONS: Final = 4
INGRESS_CONFIG: Final = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
SETTLED_S: Final = 4
"""After this time the page shows rates and times of a working proxy, not of a starting one."""
READ_WITHIN_S: Final = 3_600


def main(
    pending: Annotated[int, typer.Option(help="Number of further pending records.")] = 0,
    folder: Annotated[Path, typer.Option(help="Folder for the pictures.")] = PICTURES,
) -> None:
    """Start a broker and a proxy, write records, take pictures of the page and time its calls.

    With --pending, also make the picture with many records."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, _proxy(Path(place)) as (bootstrap, proxy):
        now_ms = time.time_ns() // 1_000_000
        call(proxy, "PUT", f"/pauses/{PAUSED}")
        write_waiting(bootstrap, FEW, now_ms, first_s=1)
        write_troubles(bootstrap, now_ms)
        origin = live(bootstrap, proxy)
        _await_read(proxy)
        with chromium() as browser:
            take_all(browser, f"http://{api_address(proxy)}/", origin, folder)
        _tell(proxy, origin)
        if pending:
            _write_many(bootstrap, proxy, pending)
            with chromium() as browser:
                take_many(browser, f"http://{api_address(proxy)}/", folder)
            _tell(proxy, origin)


@contextmanager
def _proxy(place: Path) -> Iterator[tuple[str, ProxyProcess]]:
    with EmbeddedBroker(place / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        wanted = [NewTopic(name, 2, 1) for name in TOPICS]
        wanted.append(NewTopic(INGRESS, PARTITIONS, 1, config=INGRESS_CONFIG))
        admin = admin_client(bootstrap)
        for made in admin.create_topics(wanted).values():
            made.result(60)
        settings = {
            "kafka": {"bootstrap.servers": bootstrap},
            "targets": {"deny": ["secret-*"]},
            "log": {"format": "json", "level": "info"},
        }
        proxy = ProxyProcess(place / "proxy", settings)
        proxy.start_ready()
        try:
            yield bootstrap, proxy
        finally:
            proxy.kill()


def _write_many(bootstrap: str, proxy: ProxyProcess, count: int) -> None:
    started_s = time.monotonic()
    write_waiting(bootstrap, count, time.time_ns() // 1_000_000, first_s=1_800)
    print(f"{count:,} written after {time.monotonic() - started_s:.0f} s", flush=True)
    _await_read(proxy)
    print(f"all read after {time.monotonic() - started_s:.0f} s", flush=True)


def _await_read(proxy: ProxyProcess) -> None:
    def is_read() -> bool:
        unread: int = call(proxy, "GET", "/ingest")[1]["unread"]
        return unread == 0

    time.sleep(SETTLED_S)
    wait_for(is_read, READ_WITHIN_S, "the ingress to be read")
    time.sleep(SETTLED_S)


def _tell(proxy: ProxyProcess, origin: str) -> None:
    pending = call(proxy, "GET", "/pending")[1]["pending"]
    before = resident(proxy.pid).anonymous_bytes
    taken = timings(proxy, origin)
    after = resident(proxy.pid).anonymous_bytes
    print(f"{pending:,} pending; memory {before / 1e6:.0f} MB, after {after / 1e6:.0f} MB")
    for name, taken_ms in taken.items():
        print(line(name, taken_ms), flush=True)


if __name__ == "__main__":
    typer.run(main)
