"""Asking the admin ports of running proxies."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPException, InvalidURL
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from proxy.config.settings import AdminSettings
from proxy.errors import ProxyError
from proxy.plain_text import plain
from proxy.protocol.bounded_json import MOST_BYTES, JsonRefused, read_object

ANSWER_LIMIT_S: Final = 10.0
MOST_ANSWER_BYTES: Final = 64 << 20
NAME_IT: Final = "Start it, or name its admin port: --admin host:port."
FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
ANOTHER: Final = "Another instance may: name its admin port, --admin host:port."

Answer = TypeVar("Answer")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect unanswered: the token would go to whatever address it names."""

    def redirect_request(self, *_: object) -> None:
        """Follow none; the reply is an HTTPError then."""


DIRECTLY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
"""Past any HTTP proxy of the environment, which would get the token, and knows no loopback."""


class ProxyUnreachable(ProxyError):
    """The admin port of the proxy does not answer, or refuses."""


class NotThere(ProxyError):
    """This proxy does not have what was asked for; another may."""


def fetch(
    address: str,
    path: str,
    token: str | None,
    *,
    method: str = "GET",
    body: object = None,
    within_s: float = ANSWER_LIMIT_S,
) -> str:
    """The text of a page; `address` is host:port, or a URL without a path. `body`: sent as JSON.

    Raises ProxyUnreachable, NotThere."""
    base = address if "://" in address else f"http://{address}"
    said = None if body is None else json.dumps(body).encode()
    url = f"{base.rstrip('/')}{path}"
    try:
        request = urllib.request.Request(url, said, method=method)  # noqa: S310 (a person's own)
        if said is not None:
            request.add_header("Content-Type", "application/json")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        with DIRECTLY.open(request, timeout=within_s) as answer:
            return str(answer.read(MOST_ANSWER_BYTES + 1).decode())
    except urllib.error.HTTPError as error:
        raise _refusal(base, error) from None
    except (OSError, ValueError, HTTPException) as error:
        raise _unreachable(base, error, within_s) from None


def ask(address: str, path: str, token: str | None, **how: Any) -> dict[str, Any]:
    """What a call of the API answers; otherwise as `fetch`."""
    text = fetch(address, f"/api/v1{path}", token, **how)
    try:
        return read_object(text, MOST_ANSWER_BYTES)
    except JsonRefused:
        raise no_proxy(address) from None


def ask_each(
    addresses: Iterable[str], asking: Callable[[str], Answer]
) -> tuple[list[Answer], dict[str, str]]:
    """What the instances at these addresses answer, and of those that do not: address -> why.

    Raises ProxyError where none does."""
    answers, silent, errors = list[Answer](), dict[str, str](), list[ProxyError]()
    for address in addresses:
        try:
            answers.append(asking(address))
        except ProxyError as error:
            silent[address] = str(error)
            errors.append(error)
    if not answers:
        raise errors[0]
    return answers, silent


def address_of(admin: AdminSettings) -> str:
    """Where the proxy with these settings is asked from its own machine."""
    host = "127.0.0.1" if admin.host in {"0.0.0.0", "::"} else admin.host  # noqa: S104
    return f"[{host}]:{admin.port}" if ":" in host else f"{host}:{admin.port}"


def addresses_of(admin: AdminSettings, named: Sequence[str] | None) -> Sequence[str]:
    """The instances that a person has named, else that of the settings.

    A name of several addresses, as a headless Service of Kubernetes has one for each of its pods,
    is all of them; not with https, whose certificate is for the name."""
    return [one for address in named or [address_of(admin)] for one in _all_of(address)]


def _all_of(address: str) -> Sequence[str]:
    """Of a host with addresses of both families those of one: they lead to the same instances."""
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        if url.scheme != "http":
            return [address]
        host, port = url.hostname, url.port or 80
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM) if host else []
    except (OSError, ValueError):
        return [address]
    of_family = {family: [to[0] for one, *_, to in found if one == family] for family in FAMILIES}
    hosts = dict.fromkeys(next(filter(None, of_family.values()), []))
    if len(hosts) < 2:
        return [address]
    return [f"[{one}]:{port}" if ":" in str(one) else f"{one}:{port}" for one in hosts]


def _refusal(base: str, error: urllib.error.HTTPError) -> ProxyError:
    if error.code == 401:
        return ProxyUnreachable(
            f"The proxy at {base} wants its token.",
            "Set `admin: token` to the proxy's own (environment: DELAY_PROXY_ADMIN__TOKEN).",
        )
    if 300 <= error.code < 400:
        named = plain(error.headers.get("Location", "another address"))
        return ProxyUnreachable(
            f"What answers at {base} sends on to {named}, which may be anybody's.",
            "Name the proxy's own address: --admin host:port or --admin https://host.",
        )
    try:
        said = read_object(error.read(MOST_BYTES + 1))
        detail, code = plain(said["detail"]), said["error"]
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return no_proxy(base)
    if code == "no-such-path":
        return too_old(base)
    if error.code == 404:
        return NotThere(f"The proxy at {base} does not have it: {detail}", ANOTHER)
    return ProxyUnreachable(f"The proxy at {base} refuses: {detail}")


def _unreachable(base: str, error: Exception, within_s: float) -> ProxyUnreachable:
    why = getattr(error, "reason", error)
    if isinstance(why, TimeoutError):
        return ProxyUnreachable(f"{base} does not answer in time ({within_s:g} s).", NAME_IT)
    if isinstance(error, HTTPException) and not isinstance(error, InvalidURL):
        return no_proxy(base)
    shown = why.strerror if isinstance(why, OSError) and why.strerror else why
    return ProxyUnreachable(f"No proxy answers at {base}: {shown}.", NAME_IT)


def too_old(base: str) -> ProxyUnreachable:
    """A proxy that does not have what this command asks for."""
    return ProxyUnreachable(
        f"The proxy at {base} does not know this call: it is older.",
        "Upgrade it, or use the command of its version.",
    )


def no_proxy(base: str) -> ProxyUnreachable:
    """Something answers there, and it is something else."""
    return ProxyUnreachable(f"What answers at {base} is no proxy.", NAME_IT)
