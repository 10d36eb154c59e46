"""Who may use the API: whoever has the token, or, without one, whoever is on this machine."""

import hmac
from collections.abc import Mapping
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


def admit(settings: AdminSettings, headers: Mapping[str, str]) -> None:
    """Raises Problem for those who may not use the API; names of headers in lower case.

    Without a token a page from elsewhere in a browser must not get through, be it by a name that
    leads to this machine: so the name in the header `Host` has to be this machine's own, and where
    the browser says so, the page too.
    """
    if settings.token is None:
        if not is_loopback(settings.host):
            detail = (
                "The API is closed: the admin port can be reached from other machines and no token "
                "is set. Set `admin: token`, or `admin: host` to 127.0.0.1."
            )
            raise Problem(403, "closed", detail)
        if not _is_own_name(headers.get("host", "")) or _is_from_elsewhere(headers):
            detail = "Without `admin: token` the API answers to 127.0.0.1 and localhost alone."
            raise Problem(403, "closed", detail)
    elif not is_bearer(settings.token, headers.get("authorization", "")):
        raise Problem(
            401,
            "token-needed",
            "The API needs the header `Authorization: Bearer <admin.token>`.",
            (("WWW-Authenticate", "Bearer"),),
        )


def _is_own_name(host_header: str) -> bool:
    return not host_header or is_loopback(_host_of(host_header))


def _is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another site asks."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin", "")
    is_own_origin = not origin or is_loopback(_host_of(origin.rpartition("//")[2]))
    return site not in {"none", "same-origin"} or not is_own_origin


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
