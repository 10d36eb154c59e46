"""Ports to listen on."""

import random
import socket

# Below the range from which Linux (32768) and macOS (49152) take ports for outgoing connections:
# a broker that is stopped and started again finds its port free.
LOWEST, HIGHEST = 20_000, 32_000
TRIES = 200


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
    for port in random.sample(range(LOWEST, HIGHEST), TRIES):
        if is_free(host, port):
            return port
    raise OSError(f"none of {TRIES} ports tried on {host} is free")


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether something accepts connections on `host:port`."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False
