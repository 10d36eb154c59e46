"""What the client library's errors mean to a person: what was refused, and the setting to correct.

A call that fails mostly says that no broker answers. Why, the client tells its `error_cb`.
"""

import re
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from proxy.config.settings import Settings
from proxy.errors import (
    BrokerLate,
    BrokerLimit,
    BrokerRefused,
    BrokerUnreachable,
    ProxyError,
    SettingsError,
)
from proxy.kafka.access.rights import remedy

LATE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
    }
)
UNREACHABLE: Final = LATE | {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,  # noqa: SLF001
}
LOCKED_OUT: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
    }
)
HEARD_AT_MOST: Final = 100
TLS_WITHIN_S: Final = 2.0
NOBODY_LISTENS: Final = re.compile("Connection refused|Failed to resolve")


class _Meaning(NamedTuple):
    """`words` of the client library, what they mean, as the end of a sentence, and what to do."""

    words: re.Pattern[str]
    found: str
    remedy: str


class _Limit(NamedTuple):
    """What the broker does not allow, and what to do."""

    found: str
    remedy: str


LIMITS: Final = {
    KafkaError.INVALID_SESSION_TIMEOUT: _Limit(
        found="`session.timeout.ms`",
        remedy="Set `session.timeout.ms` under `kafka` to a value from "
        "group.min.session.timeout.ms to group.max.session.timeout.ms of the broker",
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: _Limit(
        found="`transaction.timeout.ms`",
        remedy="Set `transaction.timeout.ms` under `kafka` to at most transaction.max.timeout.ms "
        "of the broker",
    ),
    KafkaError.GROUP_MAX_SIZE_REACHED: _Limit(
        found="one more member of the group",
        remedy="Run fewer workers, or raise group.max.size of the broker",
    ),
}
MEANINGS: Final = (
    _Meaning(
        re.compile("broker certificate could not be verified"),
        "shows a certificate that does not hold",
        "Either `ssl.ca.location` under `kafka` does not name the authority that signed it, or the "
        "certificate is for other host names than the one in `bootstrap.servers`, or it has "
        "expired.",
    ),
    _Meaning(
        re.compile(r"alert (bad certificate|certificate \w+|unknown ca)"),
        "does not accept the proxy's certificate",
        "Correct or renew what `ssl.certificate.location` and `ssl.key.location` under `kafka` "
        "name: it must not have expired, and an authority that the broker trusts must have signed "
        "it.",
    ),
    _Meaning(
        re.compile("invalid credentials"),
        "does not accept the password",
        "Correct `sasl.username` and `sasl.password` under `kafka` (environment: "
        "DELAY_PROXY_KAFKA__SASL_USERNAME, DELAY_PROXY_KAFKA__SASL_PASSWORD).",
    ),
    _Meaning(
        re.compile("Unsupported SASL mechanism"),
        "has no such way to log in",
        "Correct `sasl.mechanism` under `kafka`.",
    ),
    _Meaning(
        re.compile("connecting to a"),
        "speaks another protocol",
        "Correct `security.protocol` under `kafka`, or the port in `bootstrap.servers`.",
    ),
)


class HearingAdminClient(AdminClient):
    """An admin client that knows why no broker answers: refused, locked out, no such host.

    Raises SettingsError when librdkafka does not take the settings.
    """

    def __init__(self, settings: Settings, config: dict[str, Any]) -> None:
        self._settings = settings
        self._heard: deque[KafkaError] = deque(maxlen=HEARD_AT_MOST)
        hearing: dict[str, Any] = {**config, "error_cb": self._heard.append}
        with explained(settings):
            super().__init__(hearing)

    def sentence(self, error: KafkaException) -> ProxyError:
        """What to tell of an error of this client; the true cause, where it was heard."""
        self.poll(0)
        cause: KafkaError = error.args[0]
        if cause.code() in UNREACHABLE:
            cause = min([*self._heard, cause], key=_vagueness)
        sentence = explain(cause, self._settings)
        if isinstance(sentence, BrokerUnreachable) and not self._listens_nobody():
            if address := _address_that_wants_tls(self._settings):
                return BrokerRefused(
                    f"The listener at {address} wants TLS, and the proxy comes without.",
                    "Set `security.protocol` under `kafka` to SSL, or to SASL_SSL where it asks "
                    "for a login.",
                )
            return BrokerLate(self._settings.bootstrap_servers, cause.str().rstrip("."))
        return sentence

    def _listens_nobody(self) -> bool:
        """At none of the addresses: each was tried, or the client says that all are down.

        It says so, too, of brokers that let it connect and owe the first answer.
        """
        causes = [one.str() for one in self._heard if one.code() != KafkaError._ALL_BROKERS_DOWN]
        are_down = len(causes) < len(self._heard)
        tried = {cause.partition("/")[0] for cause in causes}
        is_all = are_down or len(tried) >= len(self._settings.bootstrap_servers.split(","))
        return is_all and bool(causes) and all(map(NOBODY_LISTENS.search, causes))


def _address_that_wants_tls(settings: Settings) -> str | None:
    """Find a broker address that answers a TLS handshake, if the proxy connects without TLS.

    A broker closes such a connection without a word, so the client cannot tell.
    """
    if settings.kafka.get("security.protocol", "").upper().endswith("SSL"):
        return None
    addresses = (one.strip().rpartition("://")[2] for one in settings.bootstrap_servers.split(","))
    return next(filter(_speaks_tls, addresses), None)


def _speaks_tls(address: str) -> bool:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TLS_WITHIN_S) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Turns the client's errors within the block into sentences."""
    try:
        yield
    except KafkaException as error:
        raise explain(error.args[0], settings) from error


def explain(
    error: KafkaError, settings: Settings, topic: str | None = None, operation: str = "Describe"
) -> ProxyError:
    """Return the sentence for an error of librdkafka or of the broker.

    `topic` and `operation`: what was tried, where one topic was concerned.
    """
    bootstrap, said = settings.bootstrap_servers, error.str().rstrip(".")
    if granting := remedy(error, settings, topic, operation):
        what = f" ({topic})" if topic else ""
        return BrokerRefused(f"The broker at {bootstrap} refused: {said}{what}.", granting)
    if meaning := _meaning(error):
        return BrokerRefused(f"The broker at {bootstrap} {meaning.found}: {said}.", meaning.remedy)
    if error.code() in LOCKED_OUT:
        return BrokerRefused(
            f"The broker at {bootstrap} does not let the proxy in: {said}.",
            "Correct `security.protocol`, `sasl.*` or `ssl.*` under `kafka`.",
        )
    if error.code() in LATE:
        return BrokerLate(bootstrap, said)
    if error.code() in UNREACHABLE:
        return BrokerUnreachable(bootstrap, said)
    if error.code() == KafkaError._INVALID_ARG:  # noqa: SLF001
        return SettingsError(f"librdkafka does not accept what is under `kafka`: {said}.")
    return BrokerRefused(f"The broker at {bootstrap} refused: {said} ({error.name()}).")


def refuse_beyond_limit(error: KafkaError) -> None:
    """Raises BrokerLimit where the broker will give the same answer again and again."""
    if limit := LIMITS.get(error.code()):
        raise BrokerLimit(
            f"The broker does not allow {limit.found} as the proxy asks for it: {error.str()}.",
            f"{limit.remedy}. `kafka-delay-proxy check` names the limit.",
        )


def _meaning(error: KafkaError) -> _Meaning | None:
    if error.code() not in UNREACHABLE | LOCKED_OUT:
        return None
    return next((one for one in MEANINGS if one.words.search(error.str())), None)


def _vagueness(error: KafkaError) -> int:
    if _meaning(error):
        return 0
    if error.code() in LOCKED_OUT:
        return 1
    vague = error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() not in UNREACHABLE
    return 3 if vague else 2
