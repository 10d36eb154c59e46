"""Connections to Kafka, the rights of the proxy's user, and explanations of Kafka's errors."""

import re
import shlex
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from proxy.config.settings import Settings
from proxy.errors import (
    BrokerLate,
    BrokerLimit,
    BrokerRefused,
    BrokerUnreachable,
    ProxyError,
    SettingsError,
)
from proxy.kafka.client_settings import common_config, silent_logger
from proxy.logins import with_login

log = structlog.get_logger(__name__)


# Rights are listed in docs/operations/topics.md#rights-of-the-proxys-user.

ASK_TIMEOUT_S: Final = 10.0
MAY_BE_A_RIGHT: Final = ("authorization failed", "a transaction failed", "abort failed", "may not")
"""Texts of errors that a missing right can cause. librdkafka does not always name the right."""
NEEDED: Final = {
    "ingress": ("Read", "Write", "Describe"),
    "settings": ("Read", "Write", "Describe"),
    "dead_letters": ("Write", "Describe"),
    "outcomes": ("Write", "Describe"),
}
REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Right(NamedTuple):
    """An operation on a resource, as in Kafka's kafka-acls.sh."""

    operation: str
    kind: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on the {self.kind.replace('-', ' ')} {self.name}"


def grant(rights: Sequence[Right], settings: Settings) -> str:
    """Return the advice to grant these rights on one resource to the proxy's user."""
    name = str(settings.kafka.get("sasl.username", "NAME"))
    return f"Grant it: {grant_line(rights, settings, name)}"


def grant_line(rights: Sequence[Right], settings: Settings, name: str) -> str:
    """Return the command that grants these rights on one resource to the user `name`."""
    one = rights[0]
    operations = " ".join(f"--operation {right.operation}" for right in rights)
    prefixed = " --resource-pattern-type prefixed" if one.is_prefix else ""
    return (
        f"kafka-acls.sh {addressed(settings)} --add --allow-principal "
        f"{shlex.quote(f'User:{name}')} {operations} --{one.kind} {shlex.quote(one.name)}{prefixed}"
    )


def addressed(settings: Settings) -> str:
    """Return the options with which Kafka's command-line tools reach this broker."""
    servers = (one.strip().rpartition("://")[2] for one in settings.bootstrap_servers.split(","))
    is_open = settings.kafka.get("security.protocol", "plaintext").lower() == "plaintext"
    login = "" if is_open else " --command-config admin.properties"
    return f"--bootstrap-server {shlex.quote(','.join(servers))}{login}"


def remedy(
    error: KafkaError, settings: Settings, topic: str | None = None, operation: str = "Describe"
) -> str | None:
    """Return the command that grants the refused right, or None. On `topic` it is `operation`."""
    needed = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: topic and Right(operation, "topic", topic),
        KafkaError.GROUP_AUTHORIZATION_FAILED: group_right(settings),
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactional_right(settings),
    }.get(error.code())
    return grant([needed], settings) if needed else None


def rights_on(topic: str, settings: Settings) -> list[Right]:
    """Return the rights on one of the proxy's own topics."""
    role = next(role for role in NEEDED if getattr(settings.topics, role) == topic)
    return topic_rights(topic, *NEEDED[role])


def topic_rights(topic: str, *operations: str) -> list[Right]:
    """Return the rights to these operations on a topic."""
    return [Right(operation, "topic", topic) for operation in operations]


def group_right(settings: Settings) -> Right:
    """Return the right to join the consumer group."""
    return Right("Read", "group", settings.group_id)


def transactional_right(settings: Settings) -> Right:
    """Return the right to all transactional ids of the group's workers."""
    return Right("Write", "transactional-id", f"{settings.group_id}-", is_prefix=True)


NAMED_BY: Final = (
    ("Group authorization failed", group_right),
    ("Transactional Id authorization failed", transactional_right),
)
"""The broker's texts for rights that belong to no topic."""


def lacking(topic: TopicDescription, needed: Sequence[Right]) -> list[Right]:
    """Return the missing rights, or an empty list if the broker does not tell the user's rights."""
    granted = {operation.name.title() for operation in topic.authorized_operations or ()}
    return [right for right in needed if granted and right.operation not in granted]


def is_refusal(error: KafkaError) -> bool:
    """Whether a right is missing."""
    return error.code() in REFUSALS


def refuse_missing_rights(settings: Settings, admin: AdminClient) -> None:
    """Raise BrokerRefused if a right on the proxy's own topics is missing."""
    missing = list(_missing_on_topics(settings, admin))
    if missing:
        names = ", ".join(map(str, missing))
        lines = (grant([right], settings) for right in missing)
        raise BrokerRefused(f"The proxy's user lacks {names}.", "\n".join(lines))


def log_missing_rights(settings: Settings, why: str) -> None:
    """Log each missing right that can explain a lost session."""
    if not any(words in why for words in MAY_BE_A_RIGHT):
        return
    missing = [right(settings) for words, right in NAMED_BY if words in why]
    with suppress(KafkaException):
        missing = missing or list(
            _missing_on_topics(settings, AdminClient(common_config(settings)))
        )
    for right in missing:
        log.error("a right is missing", right=str(right), remedy=grant([right], settings))


def _missing_on_topics(settings: Settings, admin: AdminClient) -> Iterator[Right]:
    own = settings.topics.own
    answers = admin.describe_topics(
        TopicCollection(list(own)),
        include_authorized_operations=True,
        request_timeout=ASK_TIMEOUT_S,
    )
    for name in own:
        needed = rights_on(name, settings)
        try:
            yield from lacking(answers[name].result(), needed)
        except KafkaException as error:
            if is_refusal(error.args[0]):
                yield from needed
            elif error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


# A failed call often says only that no broker answers. The cause reaches only `error_cb`.

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
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,  # noqa: SLF001
    }
)
HEARD_AT_MOST: Final = 100
TLS_WITHIN_S: Final = 2.0
NOBODY_LISTENS: Final = re.compile("Connection refused|Failed to resolve")


class _Meaning(NamedTuple):
    found: str
    remedy: str


LOGIN_VARIABLES: Final = (
    "(environment: DELAY_PROXY_KAFKA__SASL_USERNAME, DELAY_PROXY_KAFKA__SASL_PASSWORD)"
)
FILE_FAILED: Final = re.compile(r"([a-z.]+\.location) failed")
LIMITS: Final = {
    KafkaError.INVALID_SESSION_TIMEOUT: _Meaning(
        "`session.timeout.ms`",
        "Set `session.timeout.ms` under `kafka` to a value from group.min.session.timeout.ms to "
        "group.max.session.timeout.ms of the broker",
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: _Meaning(
        "`transaction.timeout.ms`",
        "Set `transaction.timeout.ms` under `kafka` to at most transaction.max.timeout.ms of the "
        "broker",
    ),
    KafkaError.GROUP_MAX_SIZE_REACHED: _Meaning(
        "one more member of the group",
        "Run fewer workers, or raise group.max.size of the broker",
    ),
}
INVALID_CERTIFICATE: Final = _Meaning(
    "has a certificate that is not valid",
    "Set `ssl.ca.location` under `kafka` to the authority that signed the certificate. The "
    "certificate must be for the host name in `bootstrap.servers`. It must not have expired.",
)
HAS_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
RENEW_CERTIFICATE: Final = "Renew the certificate of the broker, or of its authority."
MEANINGS: Final = {
    "broker certificate could not be verified": INVALID_CERTIFICATE,
    r"alert (bad certificate|certificate \w+|unknown ca)": _Meaning(
        "does not accept the proxy's certificate",
        "Correct or renew the certificate of `ssl.certificate.location` and `ssl.key.location` "
        "under `kafka`. It must not have expired. The broker must trust the authority that "
        "signed it.",
    ),
    "invalid credentials|Invalid username or password": _Meaning(
        "does not accept the password",
        f"Correct `sasl.username` and `sasl.password` under `kafka` {LOGIN_VARIABLES}.",
    ),
    "OAUTHBEARER token|OAuth token": _Meaning(
        "requires a token, and the proxy got none",
        "Correct `sasl.oauthbearer.*` under `kafka`, or the credentials of AWS. Check that the "
        "service that issues tokens can be reached.",
    ),
    "Unsupported SASL mechanism": _Meaning(
        "does not offer this SASL mechanism", "Correct `sasl.mechanism` under `kafka`."
    ),
    "not valid in current SASL state": _Meaning(
        "has no login at this port",
        "Correct the port in `bootstrap.servers`, or set `security.protocol` under `kafka` to SSL "
        "or PLAINTEXT.",
    ),
    "connecting to a": _Meaning(
        "speaks another protocol",
        "Correct `security.protocol` under `kafka`, or the port in `bootstrap.servers`.",
    ),
}
"""Keys are patterns of the error's text."""


class TopicUnknown(ProxyError):
    """The named topic does not exist on the broker."""

    def __init__(self, topic: str, bootstrap: str) -> None:
        super().__init__(
            f"The topic {topic} does not exist at {bootstrap}.",
            "Correct its name, or create it first.",
        )


class Connection(AdminClient):
    """An admin client that remembers why no broker answers. By default `config` holds the client
    settings for commands."""

    limit_s = 8.0

    def __init__(self, settings: Settings, config: dict[str, Any] | None = None) -> None:
        """Raises SettingsError."""
        self._settings = settings
        self._heard: deque[KafkaError] = deque(maxlen=HEARD_AT_MOST)
        hearing = dict(client_config(settings) if config is None else config)
        hearing["error_cb"] = self._heard.append
        with explained(settings):
            super().__init__(hearing)

    def describe_topic(self, topic: str, operation: str = "Describe") -> TopicDescription:
        """Return the broker's description, without creating the topic. If the user has no right to
        the topic, the error says how to grant `operation`. Raises TopicUnknown, BrokerUnreachable,
        BrokerRefused."""
        asked = TopicCollection([topic])
        answer = self.describe_topics(asked, request_timeout=self.limit_s)[topic]
        try:
            description: TopicDescription = answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicUnknown(topic, self._settings.bootstrap_servers) from None
            if is_refusal(error.args[0]):
                raise explain(error.args[0], self._settings, topic, operation) from None
            raise self.sentence(error) from None
        return description

    def sentence(self, error: KafkaException) -> ProxyError:
        """Return the message for an error, with its true cause if known."""
        self.poll(0)
        cause: KafkaError = error.args[0]
        if cause.code() in UNREACHABLE:
            cause = min([*self._heard, cause], key=_vagueness)
        sentence = explain(cause, self._settings)
        if isinstance(sentence, BrokerUnreachable) and not self._nobody_listens():
            if address := _address_that_wants_tls(self._settings):
                return BrokerRefused(
                    f"The listener at {address} requires TLS, and the proxy connects without it.",
                    "Set `security.protocol` under `kafka` to SSL, or to SASL_SSL if it "
                    "requires a login.",
                )
            return BrokerLate(self._settings.bootstrap_servers, cause.str().rstrip("."))
        return sentence

    def _nobody_listens(self) -> bool:
        """Whether no address accepts connections. The client library reports a broker as down, also
        if the broker accepts connections but does not answer."""
        causes = [one.str() for one in self._heard if one.code() != KafkaError._ALL_BROKERS_DOWN]
        are_down = len(causes) < len(self._heard)
        tried = {cause.partition("/")[0] for cause in causes}
        is_all = are_down or len(tried) >= len(self._settings.bootstrap_servers.split(","))
        return is_all and bool(causes) and all(map(NOBODY_LISTENS.search, causes))


def _address_that_wants_tls(settings: Settings) -> str | None:
    """Return an address that requires TLS, if the proxy connects without TLS. The client library
    does not report this cause."""
    if settings.kafka.get("security.protocol", "").upper().endswith("SSL"):
        return None
    return next(filter(_speaks_tls, _addresses(settings)), None)


def _addresses(settings: Settings) -> list[str]:
    return [one.strip().rpartition("://")[2] for one in settings.bootstrap_servers.split(",")]


def _shake_hands(address: str, context: ssl.SSLContext) -> None:
    """Open a TLS connection and close it. Raises OSError, or ValueError for a bad address."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.create_connection((host, int(port)), TLS_WITHIN_S) as plain:
        context.wrap_socket(plain, server_hostname=host).close()


def _distrust(settings: Settings) -> ssl.SSLCertVerificationError | None:
    """Return why a broker's certificate is not valid, or None. librdkafka does not report it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    checks_host = str(settings.kafka.get("ssl.endpoint.identification.algorithm")) != "none"
    context.check_hostname = checks_host
    try:
        _trust(context, settings)
    except (OSError, ValueError):
        return None
    for address in _addresses(settings):
        try:
            _shake_hands(address, context)
        except ssl.SSLCertVerificationError as error:
            return error
        except (OSError, ValueError):
            continue
    return None


def _trust(context: ssl.SSLContext, settings: Settings) -> None:
    """Trust the authorities that the settings name, or else those of this machine."""
    path, pem = settings.kafka.get("ssl.ca.location"), settings.kafka.get("ssl.ca.pem")
    if path in (None, "", "probe") and pem is None:
        context.load_default_certs()
    elif pem is not None:
        context.load_verify_locations(cadata=str(pem))
    elif Path(str(path)).is_dir():
        context.load_verify_locations(capath=str(path))
    else:
        context.load_verify_locations(cafile=str(path))


def _speaks_tls(address: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _shake_hands(address, context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True


class RangeUnreadable(KafkaException):
    """The broker's error while a range of `topic` was read."""

    def __init__(self, error: KafkaError, topic: str) -> None:
        super().__init__(error)
        self.topic = topic


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Turn the client's errors into ProxyErrors."""
    try:
        yield
    except KafkaException as error:
        raise explain_failure(error, settings) from error


def explain_failure(error: KafkaException, settings: Settings) -> ProxyError:
    """Return the message for an error. If a reader may not read its topic, name the topic."""
    topic = error.topic if isinstance(error, RangeUnreadable) else None
    return explain(error.args[0], settings, topic, "Read")


def explain(
    error: KafkaError, settings: Settings, topic: str | None = None, operation: str = "Describe"
) -> ProxyError:
    """Return the message for an error after `operation` on `topic`."""
    bootstrap, said = settings.bootstrap_servers, error.str().rstrip(".")
    if granting := remedy(error, settings, topic, operation):
        what = f" ({topic})" if topic else ""
        return BrokerRefused(f"The broker at {bootstrap} refused: {said}{what}.", granting)
    if meaning := _meaning(error):
        return _refused(meaning, said, settings)
    if error.code() in LOCKED_OUT:
        return BrokerRefused(
            f"The broker at {bootstrap} rejected the proxy's login: {said}.",
            "Correct `security.protocol`, `sasl.*` or `ssl.*` under `kafka`.",
        )
    if error.code() in LATE:
        return BrokerLate(bootstrap, said)
    if error.code() in UNREACHABLE:
        return BrokerUnreachable(bootstrap, said)
    if error.code() == KafkaError._INVALID_ARG:  # noqa: SLF001
        return _unaccepted(said, settings)
    return BrokerRefused(f"The broker at {bootstrap} refused: {said} ({error.name()}).")


def _refused(meaning: _Meaning, said: str, settings: Settings) -> BrokerRefused:
    """Return the message for a refusal. Begin with the reason against the broker's certificate."""
    todo = meaning.remedy
    if meaning is INVALID_CERTIFICATE and (why := _distrust(settings)):
        said = f"{why.verify_message.rstrip('.')} ({said})"
        todo = RENEW_CERTIFICATE if why.verify_code == HAS_EXPIRED else todo
    return BrokerRefused(
        f"The broker at {settings.bootstrap_servers} {meaning.found}: {said}.", todo
    )


def _unaccepted(said: str, settings: Settings) -> SettingsError:
    """Return the message for settings that librdkafka does not accept."""
    if (named := FILE_FAILED.search(said)) and (path := settings.kafka.get(named[1])):
        why = "does not exist" if not Path(str(path)).exists() else f"was rejected: {said}"
        return SettingsError(f"The file {path} of `{named[1]}` under `kafka` {why}.")
    if "sasl.password must be set" in said:
        return SettingsError(
            "The name or the password of the proxy's login is not set.",
            f"Set `sasl.username` and `sasl.password` under `kafka` {LOGIN_VARIABLES}.",
        )
    return SettingsError(f"librdkafka does not accept the settings under `kafka`: {said}.")


def refuse_beyond_limit(error: KafkaError) -> None:
    """Raise BrokerLimit if a limit of the broker causes the error, so that a retry cannot help."""
    if limit := LIMITS.get(error.code()):
        raise BrokerLimit(
            f"The broker does not allow {limit.found} as requested: {error.str()}.",
            f"{limit.remedy}. `kafka-delay-proxy check` shows the limit.",
        )


def _meaning(error: KafkaError) -> _Meaning | None:
    if error.code() not in UNREACHABLE | LOCKED_OUT:
        return None
    found = (one for words, one in MEANINGS.items() if re.search(words, error.str()))
    return next(found, None)


def _vagueness(error: KafkaError) -> int:
    if _meaning(error):
        return 0
    if error.code() in LOCKED_OUT:
        return 1
    vague = error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() not in UNREACHABLE
    return 3 if vague else 2


def client_config(settings: Settings, **own: str | int | bool) -> dict[str, Any]:
    """Return a command's client settings. A keyword `a_b` sets `a.b`, and overrides `settings`."""
    named = {name.replace("_", "."): value for name, value in own.items()}
    quiet = {"log_level": 0, "logger": silent_logger(), "client.id": "kafka-delay-proxy-cli"}
    return {**quiet, **with_login(settings.kafka), **named}
