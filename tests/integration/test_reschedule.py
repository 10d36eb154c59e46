"""Pending records are moved or released from a pause, on a real broker with kills."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any, Literal

import pytest

from proxy.protocol.headers import HOP_FIRES
from storage.options import StoreKind
from tests.support.installation.admin_client import api_address, call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
RECORDS, PARKED = 40, 400


def reschedule(proxy: ProxyProcess, origin: str, *when: str) -> tuple[int, Any]:
    asked = ["reschedule", origin, *when, "--admin", api_address(proxy), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *asked],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def asking(target: str, delay: bytes, ident: bytes | None = None) -> Outgoing:
    named = [] if ident is None else [("timer-id", ident)]
    return Outgoing(
        ident, b"value", [("timer-topic", target.encode()), ("timer-delay", delay), *named], 0
    )


@pytest.mark.parametrize(("store", "bodies"), [("wheel", "local"), ("rocksdb", "kafka")])
def test_records_are_moved_once_through_a_kill_and_a_lost_disk(
    installation: Installation, store: StoreKind, bodies: Literal["local", "kafka"]
) -> None:
    target, proxy = installation.target(), installation.proxy(store=store, bodies=bodies)
    proxy.start_ready()
    installation.send(
        asking(target, b"1h", b"id-%d" % n if n % 2 else None) for n in range(RECORDS)
    )
    installation.send([asking(target, b"0")])
    installation.await_ingested()
    origins = [f"{installation.ingress}/0/{offset}" for offset in range(RECORDS)]
    for origin in origins[2:]:
        code, said = call(proxy, "PATCH", f"/records/{origin}?wait=30s", {"deliver_at": 1})
        assert (code, said["outcome"]) == (200, "replaced")
    assert reschedule(proxy, origins[0], "--delay", "2h")[1]["outcome"] == "replaced"
    proxy.kill()
    shutil.rmtree(proxy.data_dir)
    proxy.start_ready()
    assert reschedule(proxy, origins[0], "--delay", "1s")[1]["outcome"] == "replaced"
    assert reschedule(proxy, origins[1], "--delay", "1s")[0] == 0
    ended = f"{installation.ingress}/0/{RECORDS}"
    assert call(proxy, "PATCH", f"/records/{ended}", {"deliver_at": 1})[1]["error"] == "ended"
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 0, WITHIN_S, "all gone")
    counts = installation.judge().counts
    assert (counts["delivered"], counts["replaced"]) == (RECORDS + 1, RECORDS + 1)


def test_a_pause_costs_two_writes_a_record_and_ends_at_the_rate_named(
    installation: Installation,
) -> None:
    target, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    call(proxy, "PUT", f"/pauses/{target}")
    installation.send(asking(target, b"%d" % (PARKED - n)) for n in range(PARKED))
    wait_for(lambda: installation.ends_so_far() == PARKED, WITHIN_S, "all that is due is paused")
    call(proxy, "DELETE", f"/pauses/{target}?per_second=100")
    wait_for(
        lambda: len(read_to_end(installation.bootstrap, target)) > PARKED // 4, WITHIN_S, "some"
    )
    proxy.kill()
    proxy.start_ready()
    ends = installation.judge()
    assert ends.counts["delivered"] == PARKED
    assert ends.counts["requeued"] >= 2 * PARKED, "a place that passes in the restart costs another"
    ingress = read_to_end(installation.bootstrap, installation.ingress)
    assert sum(HOP_FIRES in dict(one.headers) for one in ingress) == PARKED, "each is moved once"
    came = read_to_end(installation.bootstrap, target)
    assert max(one.timestamp_ms for one in came) - min(one.timestamp_ms for one in came) > 2_000
