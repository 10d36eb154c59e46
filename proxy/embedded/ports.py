"""Ports to listen on."""

import os
import random
import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

# Below the range from which Linux (32768) and macOS (49152) take ports for outgoing connections:
# a broker that is stopped and started again finds its port free.
LOWEST, HIGHEST = 20_000, 32_000
# A process picks among each 32nd port, and one of them again only after all others: what another
# process, or another broker of this one, keeps while it is stopped for a moment is left alone.
SHARES = 32


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on `host:port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def pick_free(host: str) -> int:
    """A port nobody listens on at `host`; somebody may take it before the caller does."""
    share = _share_of(os.getpid())
    tries = len(range(LOWEST, HIGHEST, SHARES))
    for port in islice(share, tries):
        if is_free(host, port):
            return port
    raise OSError(f"none of {tries} ports tried on {host} is free")


@cache
def _share_of(process_id: int) -> Iterator[int]:
    ports = range(LOWEST + process_id % SHARES, HIGHEST, SHARES)
    return cycle(random.sample(ports, len(ports)))


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether something accepts connections on `host:port`."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False
