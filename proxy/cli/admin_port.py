"""Requests to the admin ports of running proxies."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException, InvalidURL
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from proxy.admin.peers import ALONE, SCOPE, addresses_of
from proxy.admin.tls import trust_named, trust_own
from proxy.admin.tokens import best_token
from proxy.cli.terminal import Configured, option, say
from proxy.config.settings import AdminSettings
from proxy.errors import ProxyError
from proxy.logs import plain
from proxy.protocol.bounded_json import MOST_BYTES, JsonRefused, read_object

ANSWER_LIMIT_S: Final = 10.0
MOST_ANSWER_BYTES: Final = 64 << 20
NAME_IT: Final = "Start the proxy, or name its admin port with --admin host:port."
NONE_COVERED: Final = "No partition has caught up, so it is not known how many records are pending."
ANOTHER: Final = "Another instance may have it: name that instance with --admin host:port."

T = TypeVar("T")
Answer = dict[str, Any]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects. A redirect would send the token to another server."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that the reply becomes an HTTPError."""


def _opener(trust: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Return an opener of URLs. It ignores HTTP proxies named in the environment, because they
    would see the token."""
    handlers = [] if trust is None else [urllib.request.HTTPSHandler(context=trust)]
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects, *handlers)


DIRECTLY: Final = _opener(None)


class ProxyUnreachable(ProxyError):
    """The admin port does not answer, or refuses the request."""


class ProxyRefuses(ProxyUnreachable):
    """A proxy listens at the address, and refuses the request."""


class NotThere(ProxyError):
    """The asked proxy does not have the record or topic. Another proxy may have it."""


class InstanceSilent(ProxyError):
    """An instance did not answer, so the result is incomplete."""


def ask(
    address: str,
    path: str,
    token: str | None,
    *,
    method: str = "GET",
    body: object = None,
    within_s: float = ANSWER_LIMIT_S,
    trust: ssl.SSLContext | None = None,
    is_alone: bool = False,
) -> Answer:
    """Return the answer of one proxy: for itself if `is_alone`, else for its whole group.

    Raises ProxyUnreachable, NotThere."""
    base = address if "://" in address else f"http://{address}"
    said = None if body is None else json.dumps(body).encode()
    url = f"{base.rstrip('/')}/api/v1{path}"
    try:
        request = urllib.request.Request(url, said, method=method)  # noqa: S310 (the user's address)
        if said is not None:
            request.add_header("Content-Type", "application/json")
        if is_alone:
            request.add_header(SCOPE, ALONE)
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        with _opener(trust).open(request, timeout=within_s) as answer:
            text = answer.read(MOST_ANSWER_BYTES + 1).decode()
    except urllib.error.HTTPError as error:
        raise _refusal(base, error) from None
    except (OSError, ValueError, HTTPException) as error:
        raise _unreachable(base, error, within_s) from None
    try:
        return read_object(text, MOST_ANSWER_BYTES)
    except JsonRefused:
        raise no_proxy(address) from None


class Replies(NamedTuple, Generic[T]):
    """The answers of all instances, and the instances that did not answer."""

    answers: list[T]
    silent: dict[str, str]
    """Address -> reason for the missing answer."""


@dataclass(frozen=True, kw_only=True)
class Instances(Configured):
    """The proxies named with --admin. Default: the proxy of the settings."""

    admin: list[str] | None = option(
        "host:port or URL of an admin port. Repeat it for each instance, or give one DNS name that "
        "resolves to all of them."
    )

    @cached_property
    def addresses(self) -> Sequence[str]:
        """The addresses to ask. A name that has several addresses in DNS, such as a headless
        Service, is replaced by these addresses."""
        admin = self.settings.admin
        named = [with_scheme(one, admin) for one in self.admin or [address_of(admin)]]
        return [one for address in named for one in _all_of(address)]

    @cached_property
    def _trust(self) -> ssl.SSLContext | None:
        admin = self.settings.admin
        return trust_named(admin) if self.admin else trust_own(admin)

    def ask(self, path: str, **how: Any) -> Replies[Answer]:
        answers, silent = self.each(lambda address: self.ask_one(address, path, **how))
        for said in answers:
            silent |= missing_in(said)
        return Replies(answers, silent)

    def ask_one(self, address: str, path: str, **how: Any) -> Answer:
        """Ask one instance. It answers for its whole group. If several instances are asked, each
        answers for itself."""
        token, is_alone = best_token(self.settings.admin), len(self.addresses) > 1
        return ask(address, path, token, trust=self._trust, is_alone=is_alone, **how)

    def each(self, asking: Callable[[str], T]) -> Replies[T]:
        """Return the answers, and the errors by address. Raises ProxyError if no address
        answers."""
        answers, silent, errors = list[T](), dict[str, str](), list[ProxyError]()
        for address in self.addresses:
            try:
                answers.append(asking(address))
            except ProxyError as error:
                silent[address] = str(error)
                errors.append(error)
        if not answers:
            raise errors[0]
        return Replies(answers, silent)


@dataclass(frozen=True, kw_only=True)
class Instance(Configured):
    """The proxy named with --admin. Default: the proxy of the settings."""

    admin: str | None = option("host:port of the instance's admin port.")

    def ask(self, path: str, **how: Any) -> Answer:
        admin = self.settings.admin
        trust = trust_named(admin) if self.admin else trust_own(admin)
        address = with_scheme(self.admin or address_of(admin), admin)
        return ask(address, path, best_token(admin), trust=trust, **how)


def missing_in(said: Answer) -> dict[str, str]:
    """Return instance -> reason for each missing answer. Empty if all partitions are covered."""
    if said.get("complete", True):
        return {}
    silent = {
        one["instance"]: f"{plain(one['instance'])} did not answer. {plain(one['reason'])}"
        for one in said["unanswered"]
    }
    return silent or {
        "The group": "Some partitions recover or change to another instance, or no broker answers."
    }


def say_silent(silent: Mapping[str, str]) -> None:
    """Print which instances did not answer, and why."""
    for address, why in silent.items():
        say(f"{address}: {why}")


def refuse_silent(silent: Mapping[str, str]) -> None:
    """Raise InstanceSilent if an instance did not answer."""
    if silent:
        raise InstanceSilent("The answer is not complete. " + " ".join(silent.values()))


def address_of(admin: AdminSettings) -> str:
    """Return the address at which this machine reaches the proxy with these settings."""
    host = "127.0.0.1" if admin.host in {"0.0.0.0", "::"} else admin.host  # noqa: S104
    return f"[{host}]:{admin.port}" if ":" in host else f"{host}:{admin.port}"


def with_scheme(address: str, admin: AdminSettings) -> str:
    """Return the address. If it has no scheme and `admin.tls` is set, put https before it."""
    is_tls = admin.tls.certificate is not None or admin.tls.ca is not None
    return f"https://{address}" if is_tls and "://" not in address else address


def _all_of(address: str) -> Sequence[str]:
    """Return the IPv4 addresses of a host name. If there are none, return its IPv6 addresses. One
    address family is enough, because both families lead to the same instances."""
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        if url.scheme != "http":
            return [address]
        port = url.port or 80
        hosts = addresses_of(url.hostname, port) if url.hostname else []
    except (OSError, ValueError):
        return [address]
    if len(hosts) < 2:
        return [address]
    return [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts]


def _refusal(base: str, error: urllib.error.HTTPError) -> ProxyError:
    if 300 <= error.code < 400:
        named = plain(error.headers.get("Location", "another address"))
        return ProxyUnreachable(
            f"{base} redirects to {named}. Redirects are not followed.",
            "Name the proxy's own address: --admin host:port or --admin https://host.",
        )
    try:
        said = read_object(error.read(MOST_BYTES + 1))
        detail, code = plain(said["detail"]), said["error"]
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return no_proxy(base)
    if error.code == 401:
        return ProxyRefuses(
            f"The proxy at {base} requires a token.",
            "Set `admin: token` to a token of the proxy (environment: DELAY_PROXY_ADMIN__TOKEN).",
        )
    if code == "no-such-path":
        return ProxyRefuses(
            f"The proxy at {base} does not know this call, because it is an older version.",
            "Upgrade the proxy, or use the command line of its version.",
        )
    if error.code == 404:
        return NotThere(f"The proxy at {base} did not find it: {detail}", ANOTHER)
    return ProxyRefuses(f"The proxy at {base} refused: {detail}")


def _unreachable(base: str, error: Exception, within_s: float) -> ProxyUnreachable:
    why = getattr(error, "reason", error)
    if isinstance(why, TimeoutError):
        return ProxyUnreachable(f"{base} did not answer in time ({within_s:g} s).", NAME_IT)
    if isinstance(error, HTTPException) and not isinstance(error, InvalidURL):
        return no_proxy(base)
    if isinstance(why, ssl.SSLCertVerificationError):
        return ProxyUnreachable(
            f"The certificate of {base} is not trusted: {why.verify_message}.",
            "Set `admin.tls.ca` to the certificate file of its authority, and use a host name that "
            "is in the certificate.",
        )
    shown = why.strerror if isinstance(why, OSError) and why.strerror else why
    return ProxyUnreachable(f"No proxy answers at {base}: {shown}.", NAME_IT)


def no_proxy(base: str) -> ProxyUnreachable:
    """Return the error for a server that is not a proxy."""
    return ProxyUnreachable(f"The server at {base} is not a kafka-delay-proxy.", NAME_IT)
