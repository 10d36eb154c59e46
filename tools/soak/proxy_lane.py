"""Faults of proxies, their disks, clocks and settings."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from tests.support.installation.proxy_process import ProxyProcess
from tests.support.waiting import wait_for
from tools.soak import small_disk
from tools.soak.faults import Fault
from tools.soak.lane import NOT_ALLOWED, Lane
from tools.soak.scene import STORES, VISITOR, Scene
from tools.soak.starts import Starts

STARTED_WITHIN_S: Final = 120
STARTED: Final = '"proxy started"'
CLOCK_STEP_S: Final = 40
SETTINGS: Final = (
    {"roll_after": "700ms"},
    {"roll_after": "2s"},
    {"workers": 2},
    {"workers": 1},
    {"bodies": "kafka"},
    {"bodies": "local"},
    {"release": {"transaction_records": 200}},
    {"release": {"transaction_interval_ms": 5}},
)


class ProxyLane(Lane):
    """Faults of one of the two permanent proxies. In the fault `storm`, a third proxy comes and
    goes."""

    def __init__(self, name: str, scene: Scene, faults: Iterator[Fault], starts: Starts) -> None:
        super().__init__(name, scene, faults)
        self._starts = starts
        self._how: dict[str, Callable[[Fault, ProxyProcess], None]] = {
            "kill": self._kill,
            "kill worker": self._kill_worker,
            "terminate": self._terminate,
            "freeze": self._freeze,
            "lose disk": self._kill_and_harm,
            "cut file": self._kill_and_harm,
            "flip bits": self._kill_and_harm,
            "disk full": self._fill_disk,
            "clock ahead": self._shift,
            "clock behind": self._shift,
            "clock ahead at start": self._shift_at_start,
            "clock behind at start": self._shift_at_start,
            "other settings": self._restart,
            "other store": self._restart,
        }

    def _do(self, fault: Fault) -> str:
        if fault.what == "storm":
            return self._storm()
        if fault.what == "disk full" and not self._scene.may_fill_disks:
            return NOT_ALLOWED
        proxies = self._scene.proxies
        proxy = proxies[sorted(proxies)[fault.one_of(list(range(len(proxies))))]]
        assert proxy.is_running, f"{proxy.folder.name} has ended by itself:\n{proxy.log_tail()}"
        self._how[fault.what](fault, proxy)
        return proxy.folder.name

    def _kill(
        self,
        fault: Fault,
        proxy: ProxyProcess,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        proxy.kill()
        meanwhile()
        self._last(fault.lasts_s)
        self._starts.start(proxy, fault)

    def _kill_worker(self, fault: Fault, proxy: ProxyProcess) -> None:
        """Kill a worker. With one worker, the proxy itself is the worker."""
        workers = proxy.worker_pids()
        if not workers:
            return self._kill(fault, proxy)
        with suppress(ProcessLookupError):
            os.kill(fault.one_of(workers), signal.SIGKILL)
        return None

    def _terminate(self, fault: Fault, proxy: ProxyProcess) -> None:
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

    def _shift_at_start(self, fault: Fault, proxy: ProxyProcess) -> None:
        self._kill(fault, proxy, partial(proxy.shift_clock, _step_s(fault)))
        self._shift(fault, proxy)

    def _restart(self, fault: Fault, proxy: ProxyProcess) -> None:
        change = self._change(fault, proxy.folder.name)
        if fault.number % 2:
            return self._kill(fault, proxy, change)
        proxy.stop()
        change()
        return proxy.start()

    def _change(self, fault: Fault, instance: str) -> Callable[[], None]:
        made = self._scene.installation
        if fault.what == "other store":
            kind = STORES[(STORES.index(made.store_of(instance)) + 1) % len(STORES)]
            return partial(made.vary, instance, store=kind)
        changed = SETTINGS[int(fault.choice * 1_000) % len(SETTINGS)]
        return partial(made.vary, instance, **changed)

    def _storm(self) -> str:
        """Let another instance join the group three times, and kill it each time before the group
        has settled."""
        proxy = self._scene.installation.soak_proxy(VISITOR)
        for seconds in (1.5, 3, 4.5):
            proxy.start()
            self._last(seconds)
            proxy.kill()
        return VISITOR

    def _kill_and_harm(self, fault: Fault, proxy: ProxyProcess) -> None:
        self._kill(fault, proxy, partial(self._harm_disk, fault.what, proxy))

    def _fill_disk(self, fault: Fault, proxy: ProxyProcess) -> None:
        small_disk.fill(proxy.data_dir)
        self._last(fault.lasts_s)
        small_disk.free(proxy.data_dir)

    def _harm_disk(self, what: str, proxy: ProxyProcess) -> None:
        """Delete the folder, cut a file, or change a byte."""
        files = [p for p in proxy.data_dir.rglob("*") if p.is_file() and p.stat().st_size]
        if what == "lose disk" or not files:
            for path in proxy.data_dir.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            return
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


def _step_s(fault: Fault) -> int:
    return CLOCK_STEP_S if "ahead" in fault.what else -CLOCK_STEP_S
