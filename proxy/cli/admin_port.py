"""Asking the admin port of a running proxy."""

import json
import urllib.error
import urllib.request
from contextlib import suppress

from proxy.config.settings import AdminSettings
from proxy.errors import ProxyError

ANSWER_LIMIT_S = 10.0


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
    request = urllib.request.Request(url, said, method=method)  # noqa: S310 (a person's own)
    if said is not None:
        request.add_header("Content-Type", "application/json")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise _refusal(address, error) from None
    except (OSError, ValueError) as error:
        raise ProxyUnreachable(
            f"No proxy answers at {base}: {getattr(error, 'reason', error)}.",
            "Start it, name its admin server with --admin host:port, or read its --data-dir.",
        ) from None


def address_of(admin: AdminSettings) -> str:
    """Where the proxy with these settings is asked from its own machine."""
    host = "127.0.0.1" if admin.host in {"0.0.0.0", "::"} else admin.host  # noqa: S104
    return f"{host}:{admin.port}"


def _refusal(address: str, error: urllib.error.HTTPError) -> ProxyError:
    detail = ""
    with suppress(ValueError, KeyError, TypeError, OSError):
        detail = f" {json.loads(error.read())['detail']}"
    if error.code == 404:
        return NotThere(f"The proxy at {address} answered 404.{detail}", "")
    return ProxyUnreachable(
        f"The proxy at {address} answered {error.code} {error.reason}.{detail}",
        "Set `admin: token` to the proxy's own." if error.code == 401 else "",
    )
