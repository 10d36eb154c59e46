"""Does the faults to the scene, one lane for the proxies and one for brokers and network."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka.cimpl import NewPartitions

from tests.soak.faults import Fault
from tests.soak.scene import STORES, VISITOR, Scene
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.quiet_clients import admin_client
from tests.support.waiting import wait_for

ADMIN_WITHIN_S: Final = 60
STARTED_WITHIN_S: Final = 120
STARTED: Final = '"proxy started"'
MOST_PARTITIONS: Final = 8
CLOCK_STEP_S: Final = 40
SETTINGS: Final = (
    {"roll_after": "500ms"},
    {"roll_after": "1s"},
    {"workers": 2},
    {"workers": 1},
    {"bodies": "kafka"},
    {"bodies": "local"},
    {"release": {"transaction_records": 200}},
    {"release": {"transaction_interval_ms": 5}},
)


class Done(NamedTuple):
    """A fault that has been done: when it began, in seconds of the soak, and how long it took."""

    lane: str
    number: int
    what: str
    whom: str
    began_s: float
    took_s: float


class Lane(ABC):
    """Does one fault after the other until it is told to end; each is made good again."""

    def __init__(self, name: str, scene: Scene, faults: Iterator[Fault]) -> None:
        self.done: list[Done] = []
        self.failed: BaseException | None = None
        self._name, self._scene, self._faults = name, scene, faults
        self._ending = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def begin(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def end(self) -> None:
        """Let the last fault be made good; raises what the lane itself failed with."""
        self._ending.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    @abstractmethod
    def _do(self, fault: Fault) -> str:
        """Do it and make it good; to whom it was done."""

    def _last(self, seconds: float) -> None:
        self._ending.wait(seconds)

    def _run(self) -> None:
        try:
            for fault in self._faults:
                if self._ending.wait(fault.pause_s):
                    return
                began_s = time.monotonic() - self._began
                whom = self._do(fault)
                took_s = time.monotonic() - self._began - began_s
                self.done.append(Done(self._name, fault.number, fault.what, whom, began_s, took_s))
        except BaseException as error:  # noqa: BLE001 (raised where the lane is ended)
            self.failed = error


class ProxyLane(Lane):
    """Faults of proxies, their disks, clocks and settings."""

    def _do(self, fault: Fault) -> str:
        proxies = self._scene.proxies
        proxy = proxies[sorted(proxies)[fault.one_of(list(range(len(proxies))))]]
        name = proxy.folder.name
        if fault.what == "storm":
            self._storm()
            return VISITOR
        assert proxy.is_running, f"{name} has ended by itself:\n{proxy.log_tail()}"
        match fault.what:
            case "kill":
                self._kill(fault, proxy)
            case "kill worker":
                self._kill_worker(fault, proxy)
            case "terminate":
                self._terminate(fault, proxy)
            case "freeze":
                self._freeze(fault, proxy)
            case "lose disk" | "cut file" | "flip bits":
                self._kill(fault, proxy, partial(self._harm_disk, fault.what, proxy))
            case "clock ahead" | "clock behind":
                self._shift(fault, proxy)
            case "clock ahead at start" | "clock behind at start":
                self._kill(fault, proxy, partial(proxy.shift_clock, _step_s(fault)))
                self._shift(fault, proxy)
            case "other settings" | "other store":
                self._restart(fault, proxy, self._change(fault, name))
        return name

    def _kill(
        self,
        fault: Fault,
        proxy: ProxyProcess,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        proxy.kill()
        meanwhile()
        self._last(fault.lasts_s)
        proxy.start()

    def _kill_worker(self, fault: Fault, proxy: ProxyProcess) -> None:
        """Of a proxy with one worker that is the proxy itself."""
        workers = proxy.worker_pids()
        if not workers:
            return self._kill(fault, proxy)
        with suppress(ProcessLookupError):
            os.kill(fault.one_of(workers), signal.SIGKILL)
        return None

    def _terminate(self, fault: Fault, proxy: ProxyProcess) -> None:
        """Not before it listens to signals."""
        wait_for(lambda: STARTED in proxy.log, STARTED_WITHIN_S, "the proxy to have started")
        code = proxy.stop()
        assert code == 0, f"SIGTERM ended {proxy.folder.name} with {code}:\n{proxy.log_tail()}"
        self._last(fault.lasts_s)
        proxy.start()

    def _freeze(self, fault: Fault, proxy: ProxyProcess) -> None:
        proxy.signal(signal.SIGSTOP)
        self._last(fault.lasts_s)
        proxy.signal(signal.SIGCONT)

    def _shift(self, fault: Fault, proxy: ProxyProcess) -> None:
        proxy.shift_clock(_step_s(fault))
        self._last(fault.lasts_s)
        proxy.shift_clock(0)

    def _restart(self, fault: Fault, proxy: ProxyProcess, meanwhile: Callable[[], None]) -> None:
        """With other settings: from a clean stop, and from none."""
        if fault.number % 2:
            return self._kill(fault, proxy, meanwhile)
        proxy.stop()
        meanwhile()
        return proxy.start()

    def _change(self, fault: Fault, instance: str) -> Callable[[], None]:
        made = self._scene.installation
        if fault.what == "other store":
            kind = STORES[(STORES.index(made.store_of(instance)) + 1) % len(STORES)]
            return partial(made.vary, instance, store=kind)
        changed = SETTINGS[int(fault.choice * 1_000) % len(SETTINGS)]
        return partial(made.vary, instance, **changed)

    def _storm(self) -> None:
        """One more instance joins and is gone before the group has come to rest, three times."""
        proxy = self._scene.installation.soak_proxy(VISITOR)
        for seconds in (1.5, 3, 4.5):
            proxy.start()
            self._last(seconds)
            proxy.kill()

    def _harm_disk(self, what: str, proxy: ProxyProcess) -> None:
        files = [p for p in proxy.data_dir.rglob("*") if p.is_file() and p.stat().st_size]
        if what == "lose disk" or not files:
            return shutil.rmtree(proxy.data_dir, ignore_errors=True)
        draw = self._scene.draw
        path = draw.choice(sorted(files))
        at = draw.randrange(path.stat().st_size)
        with path.open("r+b") as file:
            if what == "cut file":
                file.truncate(at)
            else:
                file.seek(at)
                (byte,) = file.read(1)
                file.seek(at)
                file.write(bytes([byte ^ draw.randrange(1, 256)]))
        return None


class BrokerLane(Lane):
    """Faults of brokers, and of the network before them; the cluster is whole in between."""

    def _do(self, fault: Fault) -> str:
        cluster, relays = self._scene.cluster, self._scene.relays
        node = fault.one_of(cluster.numbers)
        match fault.what:
            case "kill leader":
                node = cluster.await_leader(self._scene.installation.ingress, 0)
                self._down(fault, node, cluster.kill)
            case "kill coordinator":
                node = cluster.group_coordinator(f"{self._scene.installation.name}.proxy")
                self._down(fault, node, cluster.kill)
            case "stop":
                self._down(fault, node, cluster.stop)
            case "freeze":
                cluster.freeze(node)
                self._last(fault.lasts_s)
                cluster.thaw(node)
                cluster.await_whole()
            case "cut":
                relays.cut(node)
            case "refuse":
                self._network(fault, node, lambda: relays.refuse(node))
            case "slow":
                self._network(fault, node, lambda: relays.slow(node, fault.choice / 5))
            case "no requests" | "no answers":
                is_answered = fault.what == "no requests"
                self._network(fault, node, lambda: relays.half_open(node, is_answered=is_answered))
            case "add partitions":
                return self._add_partition()
        return f"node {node}"

    def _down(self, fault: Fault, node: int, end: Callable[[int], None]) -> None:
        cluster = self._scene.cluster
        end(node)
        self._last(fault.lasts_s)
        cluster.start(node)
        cluster.await_whole()

    def _network(self, fault: Fault, node: int, begin: Callable[[], None]) -> None:
        begin()
        self._last(fault.lasts_s)
        self._scene.relays.heal(node)

    def _add_partition(self) -> str:
        topic, cluster = self._scene.targets[1], self._scene.cluster
        admin = admin_client(cluster.direct_servers)
        there = len(admin.list_topics(topic, ADMIN_WITHIN_S).topics[topic].partitions)
        if there < MOST_PARTITIONS:
            wanted = [NewPartitions(topic, there + 1)]
            admin.create_partitions(wanted)[topic].result(ADMIN_WITHIN_S)
        return topic


def _step_s(fault: Fault) -> int:
    return CLOCK_STEP_S if "ahead" in fault.what else -CLOCK_STEP_S
