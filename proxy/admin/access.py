"""Access to the admin port: its socket, tokens, local names, and lock-outs."""

import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from proxy.admin.problem import Problem
from proxy.config.settings import AdminSettings
from proxy.errors import PortTaken, SettingsError

MOST_GUESSES: Final = 10
GUESSES_WITHIN_S: Final = 60.0
MOST_ADDRESSES: Final = 1_000
BACKLOG: Final = 128
LOCAL_SUFFIXES: Final = (".localhost", ".svc", ".cluster.local")


def listen(settings: AdminSettings) -> socket.socket:
    """Return the socket of the admin port. Raises PortTaken, SettingsError."""
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server(
            (settings.host, settings.port),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=settings.host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            choose = "Stop the program there, or choose another `admin: port` (0 picks a free one)."
            raise PortTaken(settings.host, settings.port, choose) from None
        raise SettingsError(
            f"The admin server cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            "Correct `admin: host` and `admin: port`.",
        ) from None


class WrongTokens:
    """Counts of wrong tokens by client address. Thread-safe.

    MOST_GUESSES wrong tokens within GUESSES_WITHIN_S lock an address out."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._counted: dict[str, tuple[int, float]] = {}
        """Address -> wrong tokens, and the monotonic time at which they expire."""

    def refuse(self, address: str) -> None:
        """Raise Problem if the address is locked out. A valid token does not unlock it."""
        with self._lock:
            count, until_s = self._counted.get(_network(address), (0, 0.0))
        left_s = until_s - self._now_s()
        if count >= MOST_GUESSES and left_s > 0:
            detail = f"Too many wrong tokens came from {address}. Try again in {left_s:.0f} s."
            raise Problem(429, "locked-out", detail, {"Retry-After": str(int(left_s) + 1)})

    def add(self, address: str) -> None:
        with self._lock:
            name, now_s = _network(address), self._now_s()
            count, until_s = self._counted.pop(name, (0, 0.0))
            if until_s <= now_s:
                count, until_s = 0, now_s + GUESSES_WITHIN_S
            if len(self._counted) >= MOST_ADDRESSES:
                del self._counted[next(iter(self._counted))]
            self._counted[name] = (count + 1, until_s)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a port on `host`."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def admit(settings: AdminSettings, headers: Mapping[str, str]) -> None:
    """Raise Problem if a request may not use the API. Called only if no token is set.

    A page of another website in the operator's browser must not reach the API, not even by DNS
    rebinding. So the headers `Host` and `Origin` must name this machine if they are present. Keys
    of `headers` are in lower case."""
    if not is_loopback(settings.host):
        detail = (
            "The API is closed, because other machines can reach the admin port and no token "
            "is set. Set `admin: token`, or set `admin: host` to 127.0.0.1."
        )
        raise Problem(403, "closed", detail)
    host, origin = headers.get("host", ""), headers.get("origin", "")
    is_own = not host or is_loopback(_host_of(host))
    is_own = is_own and (not origin or is_loopback(_host_of(origin.rpartition("//")[2])))
    if not is_own or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        detail = (
            "Without `admin: token` the API answers only at 127.0.0.1 and localhost. Use one "
            "of them, or set a token."
        )
        raise Problem(403, "closed", detail)


def refuse_foreign_name(host_header: str) -> None:
    """Raise Problem unless `Host` has an address or a local name.

    A stranger may let any other name resolve to this machine. Prometheus scrapes by a pod's address
    or a Service's name, so the port answers at both."""
    name = _host_of(host_header)
    is_local = "." not in name or name.endswith(LOCAL_SUFFIXES) or name == socket.gethostname()
    if not is_local and _address(name) is None:
        detail = (
            "Without `admin: token` this port answers only at addresses and local names, not at "
            f"{name[:100]}. Use the address in the URL, or set `admin: token`."
        )
        raise Problem(403, "closed", detail)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address. One machine may own a whole
    /64."""
    address = _address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(int(address) >> 64)
    return text


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
