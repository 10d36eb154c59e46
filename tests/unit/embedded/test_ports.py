"""A port reserved for a stopped broker is not given to another broker."""

import os

import pytest

from proxy.embedded import server as ports
from proxy.embedded.server import HIGHEST, LOWEST, SHARES, pick_free

HOST = "127.0.0.1"
PICKS = 300


def test_no_port_is_picked_twice_though_nobody_listens_there() -> None:
    picked = [pick_free(HOST) for _ in range(PICKS)]

    assert len(set(picked)) == PICKS
    assert all(LOWEST <= port < HIGHEST for port in picked)


def test_processes_side_by_side_pick_from_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    process = os.getpid()

    def picked_by(process_id: int) -> set[int]:
        monkeypatch.setattr(os, "getpid", lambda: process_id)
        return {pick_free(HOST) for _ in range(PICKS)}

    every = [picked_by(process + further) for further in range(SHARES)]

    assert sum(map(len, every)) == len(set.union(*every)), "no port by two of them"


def test_nothing_free_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda *_: False)

    with pytest.raises(OSError, match=r"none of 375 ports tried on 127\.0\.0\.1 is free"):
        pick_free(HOST)
