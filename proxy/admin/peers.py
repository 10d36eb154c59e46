"""Calls to the other instances of the group, with bounds on time, bytes and addresses."""

import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import structlog

from proxy.admin.broker_access import BrokerAccess, IngressFacts
from proxy.admin.problem import Problem
from proxy.admin.tls import trust_named, trust_own
from proxy.config.settings import AdminSettings, Settings
from proxy.errors import SettingsError
from proxy.kafka.group import OwnersUnknown
from proxy.logs import plain
from proxy.protocol.bounded_json import JsonRefused, read_object

SCOPE: Final = "delay-proxy-scope"
"""A header of requests. With the value ALONE, an instance answers for itself only."""
ALONE: Final = "instance"
GROUP: Final = "delay-proxy-group"
"""A header between instances: cluster and consumer group, in requests and in replies."""
INSTANCE: Final = "delay-proxy-instance"
"""A header of replies to instances: the instance's name, and a random number
of its process."""
PREFIX: Final = "/api/v1"

ANSWER_WITHIN_S: Final = 5.0
MOST_ANSWER_BYTES: Final = 4 << 20
MOST_ADDRESSES: Final = 50
RESOLVED_FOR_S: Final = 5.0
RESOLVE_WITHIN_S: Final = 1.0
REST_S: Final = 10.0
"""A peer that has refused a token is not asked with this token during this pause. Otherwise the
peer would lock this instance out after ten wrong tokens in a minute."""
MOST_RESTING: Final = 1_000
FACTS_FOR_S: Final = 10.0
FACTS_WITHIN_S: Final = 1.0
REFUSES_TOKEN: Final = frozenset({401, 429})
FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
NO_PEER: Final = (
    "It is in the consumer group, but no answer came from it. `admin.peers` must lead to it."
)
NO_ANSWER: Final = "It did not answer within {:g} s."
NO_PROXY: Final = "It is no kafka-delay-proxy of this version: it answered with HTTP status {}."
OTHER_GROUP: Final = "It belongs to another group or cluster: {}."
REFUSED: Final = "It refuses the token of the caller: HTTP status {}."
TOO_LARGE: Final = "Its answer has more than {:,} bytes."

log = structlog.get_logger(__name__)


class Asker(NamedTuple):
    """The caller for whom an instance asks its peers."""

    credentials: Mapping[str, str]
    """Headers that prove who the caller is. Peers check them as this instance did."""
    is_valid: Callable[[], bool] = lambda: True
    """Whether the credentials are still valid here."""


class Place(NamedTuple):
    """An address of a peer."""

    url: str
    """The URL in the settings."""
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Reply(NamedTuple):
    """The reply of an instance."""

    instance: str
    address: str | None
    """None for this instance, which the client has called."""
    status: int
    said: dict[str, Any]

    @property
    def detail(self) -> str:
        """The reason that a refusing reply gives."""
        return plain(str(self.said.get("detail", f"HTTP status {self.status}")))


class Replies(NamedTuple):
    """The replies of all peers."""

    answers: list[Reply]
    silent: dict[str, str]
    """Instance or address -> reason for the missing answer."""


def addresses_of(host: str, port: int) -> list[str]:
    """Return the IPv4 addresses of a host name. If there are none, return its IPv6 addresses. One
    family is enough, because both lead to the same instances. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    of_family = [[str(to[0]) for one, *_, to in found if one == family] for family in FAMILIES]
    return list(dict.fromkeys(next(filter(None, of_family), [])))


class _Call:
    """A request to one peer, in a thread of its own."""

    def __init__(self, place: Place, trust: ssl.SSLContext | None, within_s: float) -> None:
        self.place, self._trust, self._within_s = place, trust, within_s
        self.status, self.headers, self.body = 0, dict[str, str](), b""
        self.failure = self._late = NO_ANSWER.format(within_s)
        self._done = threading.Event()
        self._socket: socket.socket | None = None

    def run(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            self._exchange(method, path, body, headers)
            self.failure = ""
        except TimeoutError:
            pass
        except ssl.SSLCertVerificationError as error:
            self.failure = f"Its certificate is not trusted: {error.verify_message}."
        except HTTPException:
            self.failure = NO_PROXY.format("none")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self.failure = f"No connection: {plain(str(why))}."
        finally:
            if self._socket is not None:
                self._socket.close()
            self._done.set()

    def _exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        place = self.place
        raw = self._socket = socket.create_connection(place[1:], timeout=self._within_s)
        connection = HTTPConnection(place.host, place.port)
        connection.sock = raw
        if self._trust is not None:
            named = urlsplit(place.url).hostname
            connection.sock = self._socket = self._trust.wrap_socket(raw, server_hostname=named)
        try:
            connection.request(method, path, body or None, dict(headers))
            with connection.getresponse() as answer:
                self.headers = {name.lower(): value for name, value in answer.getheaders()}
                self.body = answer.read(MOST_ANSWER_BYTES + 1)
                self.status = answer.status
        finally:
            connection.close()

    def wait(self, until_s: float) -> str:
        """Wait for the reply. Return an empty text, or why there is no reply. If the reply is late,
        shut down the socket, so that the call ends at once."""
        if self._done.wait(max(0.0, until_s - time.monotonic())):
            return self.failure
        if (opened := self._socket) is not None:
            with suppress(OSError, ValueError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)
        return self._late


class Peers:
    """The other instances of the group. Thread-safe.

    Credentials go only to addresses of `admin.peers`. Redirects are not followed. A reply is used
    only if it names the same cluster and group."""

    def __init__(self, settings: Settings, broker: BrokerAccess) -> None:
        self._settings = settings
        self._process = secrets.token_hex(8)
        """Tells this process from another one of the same name."""
        self._lock = threading.Lock()
        self._places: list[Place] = []
        self._unresolved: dict[str, str] = {}
        self._resolved_s = float("-inf")
        self._trust: ssl.SSLContext | None = None
        self._own: set[Place] = set()
        self._names: dict[Place, str] = {}
        self._resting: dict[tuple[Place, int], tuple[float, str]] = {}
        self._facts = _Refreshed("ingress", broker)
        self._members = _Refreshed("instances", broker)

    @property
    def is_configured(self) -> bool:
        return bool(self._settings.admin.peers)

    def facts(self) -> IngressFacts | None:
        """Return the facts about the ingress, which may be some seconds old. Return None if they
        are not known yet."""
        found: IngressFacts | None = self._facts.value(FACTS_WITHIN_S)
        return found if found and found.partitions else None

    def identity(self) -> str | None:
        """Return cluster and group in the form of the header GROUP. Return None if they are not
        known yet."""
        facts = self.facts()
        return facts and f"{quote(facts.cluster, '')}/{quote(self._settings.group_id, '')}"

    def own_header(self) -> str:
        """Return the value of the header INSTANCE."""
        return f"{quote(self._settings.instance_name, '')}/{self._process}"

    def missing(self, partitions: Iterable[int]) -> list[int] | None:
        """Return the ingress partitions that are not in `partitions`. Return None if the broker has
        not named the partitions yet."""
        facts = self.facts()
        return None if facts is None else sorted({*range(facts.partitions)} - {*partitions})

    def strangers(self, known: Iterable[str]) -> dict[str, str]:
        """Return each member of the group that has never replied, and a sentence for it. Members
        in `known` are left out."""
        members: set[str] = self._members.value(0.0) or set()
        known = {*known, *self._names.values(), self._settings.instance_name}
        return dict.fromkeys(sorted(members - known), NO_PEER)

    def ask(
        self,
        asker: Asker,
        method: str,
        path: str,
        body: bytes = b"",
        within_s: float = ANSWER_WITHIN_S,
    ) -> Replies:
        """Ask all peers at the same time, for at most `within_s`. `path` begins with /api. The
        result has the replies, and the reason for each missing reply."""
        if not self.is_configured:
            return Replies([], {})
        places, silent = self._resolve()
        identity = self.identity()
        if identity is None:
            why = "This instance does not know its cluster yet, because the broker is silent."
            return Replies([], silent | {self._named(one): why for one in places})
        headers = {**asker.credentials, SCOPE: ALONE, GROUP: identity, "Connection": "close"}
        if body:
            headers["Content-Type"] = "application/json"
        asked = hash(tuple(sorted(asker.credentials.items())))
        calls: list[_Call] = []
        for place in places:
            rests_until_s, why = self._resting.get((place, asked), (0.0, ""))
            if time.monotonic() < rests_until_s:
                silent[self._named(place)] = why
            elif place not in self._own:
                calls.append(self._start(place, within_s, method, path, body, headers))
        return self._read(calls, time.monotonic() + within_s, identity, asked, silent)

    def _start(
        self, place: Place, within_s: float, method: str, path: str, body: bytes, headers: Any
    ) -> _Call:
        call = _Call(place, self._trust if place.url.startswith("https:") else None, within_s)
        thread = threading.Thread(target=call.run, args=(method, path, body, headers), name="peer")
        thread.daemon = True
        thread.start()
        return call

    def _read(
        self,
        calls: Sequence[_Call],
        until_s: float,
        identity: str,
        asked: int,
        silent: dict[str, str],
    ) -> Replies:
        answers: dict[str, Reply] = {}
        for call in calls:
            failure = call.wait(until_s)
            found = failure or self._reply(call, identity)
            if isinstance(found, str):
                silent[self._named(call.place)] = found
                if call.status in REFUSES_TOKEN:
                    self._rest(call.place, asked, found)
                continue
            process, reply = found
            if process == self._process:
                self._own.add(call.place)
            else:
                answers.setdefault(process, reply)
        return Replies(list(answers.values()), silent)

    def _reply(self, call: _Call, identity: str) -> tuple[str, Reply] | str:
        """Return the process and its reply, or the reason why the reply is not used."""
        if call.status in REFUSES_TOKEN:
            return REFUSED.format(call.status)
        named, _, process = call.headers.get(INSTANCE, "").rpartition("/")
        if not named:
            return NO_PROXY.format(call.status)
        if len(call.body) > MOST_ANSWER_BYTES:
            return TOO_LARGE.format(MOST_ANSWER_BYTES)
        if call.headers.get(GROUP) != identity:
            group = plain(unquote(call.headers.get(GROUP, "unknown")))[:300]
            return OTHER_GROUP.format(group)
        try:
            said = read_object(call.body, MOST_ANSWER_BYTES)
        except JsonRefused as refused:
            return f"Its answer cannot be read: {refused}."
        name = self._names[call.place] = plain(unquote(named))[:200]
        return process, Reply(name, str(call.place), call.status, said)

    def _named(self, place: Place) -> str:
        name = self._names.get(place)
        return f"{name} ({place})" if name else str(place)

    def _rest(self, place: Place, asked: int, why: str) -> None:
        with self._lock:
            if len(self._resting) >= MOST_RESTING:
                self._resting.clear()
            self._resting[place, asked] = time.monotonic() + REST_S, why

    def _resolve(self) -> tuple[list[Place], dict[str, str]]:
        """Return all addresses of the peers, and the names without an address."""
        now_s = time.monotonic()
        with self._lock:
            is_old = now_s - self._resolved_s > RESOLVED_FOR_S
            if is_old:
                self._resolved_s = now_s
        if is_old:
            thread = threading.Thread(target=self._look_up, name="peers' names", daemon=True)
            thread.start()
            thread.join(RESOLVE_WITHIN_S)
            if thread.is_alive() and not self._places:
                why = "The name server does not answer."
                return [], dict.fromkeys(self._settings.admin.peers, why)
        with self._lock:
            return list(self._places), dict(self._unresolved)

    def _look_up(self) -> None:
        places, unresolved = dict[Place, None](), dict[str, str]()
        admin = self._settings.admin
        try:
            trust = self._trusted(admin)
        except SettingsError as error:
            trust = None
            unresolved = {url: str(error) for url in admin.peers if url.startswith("https:")}
        for url in [one for one in admin.peers if one not in unresolved]:
            parts = urlsplit(url)
            assert parts.hostname is not None
            assert parts.port is not None
            try:
                hosts = addresses_of(parts.hostname, parts.port)
            except (OSError, UnicodeError) as error:
                unresolved[url] = f"Its name has no address: {getattr(error, 'strerror', error)}."
                continue
            places |= dict.fromkeys(Place(url, host, parts.port) for host in hosts)
        for place in list(places)[MOST_ADDRESSES:]:
            unresolved[str(place)] = f"Only {MOST_ADDRESSES} addresses are asked."
        with self._lock:
            self._places = list(places)[:MOST_ADDRESSES]
            self._own &= places.keys()
            self._names = {place: name for place, name in self._names.items() if place in places}
            self._unresolved, self._trust = unresolved, trust

    @staticmethod
    def _trusted(admin: AdminSettings) -> ssl.SSLContext | None:
        """Return the TLS context for calls to peers. It trusts `admin.tls.ca`. Without that
        setting, it trusts only this instance's own certificate. Without a certificate, it trusts
        the system's authorities."""
        if not any(url.startswith("https:") for url in admin.peers):
            return None
        own = trust_own(admin) if admin.tls.ca is None else None
        return own or trust_named(admin)


class _Refreshed:
    """A value from the broker that a thread reads again if it is old."""

    def __init__(self, method: str, broker: BrokerAccess) -> None:
        self._method, self._broker = method, broker
        self._value: Any = None
        self._read_s = float("-inf")
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def value(self, within_s: float) -> Any:
        """Return the newest value. If there is none yet, wait up to `within_s` for the first value.
        Return None if it does not come."""
        with self._lock:
            is_old = time.monotonic() - self._read_s > FACTS_FOR_S
            if is_old and self._thread is None:
                self._thread = threading.Thread(target=self._take, name="group", daemon=True)
                self._thread.start()
            thread = self._thread
        if self._value is None and thread is not None:
            thread.join(within_s)
        return self._value

    def _take(self) -> None:
        try:
            self._value = getattr(self._broker, self._method)()
        except (Problem, OwnersUnknown) as error:
            log.debug("the broker does not describe the group", why=str(error))
        finally:
            self._read_s, self._thread = time.monotonic(), None
