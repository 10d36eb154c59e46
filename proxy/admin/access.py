"""Who may use the API: whoever has the token, or, without one, whoever is on this machine."""

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from proxy.admin.exchange import Problem
from proxy.config.settings import AdminSettings


def is_bearer(token: str | None, authorization: str) -> bool:
    """Whether the header `Authorization` shows the token; nobody needs to where there is none."""
    if token is None:
        return True
    expected = f"Bearer {token}"
    return hmac.compare_digest(authorization.encode("utf-8", "replace"), expected.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def admit(settings: AdminSettings, authorization: str, host_header: str) -> None:
    """Raises Problem for those who may not use the API.

    Without a token a page in a browser must not get through by a name that leads to this machine:
    so the name in the header `Host` has to be this machine's own.
    """
    if settings.token is None:
        if not is_loopback(settings.host):
            detail = (
                "The API is closed: the admin port can be reached from other machines and no token "
                "is set. Set `admin: token`, or `admin: host` to 127.0.0.1."
            )
            raise Problem(403, "closed", detail)
        if host_header and not is_loopback(_host_of(host_header)):
            detail = "Without `admin: token` the API answers to 127.0.0.1 and localhost alone."
            raise Problem(403, "closed", detail)
    elif not is_bearer(settings.token, authorization):
        raise Problem(
            401,
            "token-needed",
            "The API needs the header `Authorization: Bearer <admin.token>`.",
            (("WWW-Authenticate", "Bearer"),),
        )


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
