"""Short-lived Kafka clients for a person's hands, and what their errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from proxy.config.settings import Settings
from proxy.errors import BrokerRefused, BrokerUnreachable, ProxyError, SettingsError
from proxy.records.header_text import read_headers
from proxy.records.headers import UNREADABLE

UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,  # noqa: SLF001
    }
)
LOCKED_OUT = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
    }
)


class TopicUnknown(ProxyError):
    """A topic the person named does not exist on the broker."""

    def __init__(self, topic: str, bootstrap: str) -> None:
        super().__init__(
            f"The topic {topic} does not exist at {bootstrap}.",
            "Correct its name, or create it first.",
        )


class Connection:
    """An admin client that knows why no broker answers: refused, locked out, no such host.

    No question waits longer than `limit_s`. Raises SettingsError when librdkafka does not take the
    settings.
    """

    limit_s = 8.0

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._heard: list[KafkaError] = []
        config = {**client_config(settings), "error_cb": self._heard.append}
        with explained(settings):
            self.admin = AdminClient(config)

    def sentence(self, error: KafkaException) -> ProxyError:
        """What to tell of an error of this client; the true cause, where it was heard."""
        self.admin.poll(0)
        cause: KafkaError = error.args[0]
        if cause.code() in UNREACHABLE:
            locked_out = [heard for heard in self._heard if heard.code() in LOCKED_OUT]
            named = [heard for heard in self._heard if heard.code() in UNREACHABLE]
            cause = next(iter([*locked_out, *named, cause]))
        return explain(cause, self._settings)

    def describe_topic(self, topic: str) -> TopicDescription:
        """The broker's description; asking never creates the topic.

        Raises TopicUnknown, BrokerUnreachable, BrokerRefused.
        """
        answers = self.admin.describe_topics(TopicCollection([topic]), request_timeout=self.limit_s)
        try:
            description: TopicDescription = answers[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicUnknown(topic, self._settings.bootstrap_servers) from None
            raise self.sentence(error) from None
        return description


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Turns the client's errors within the block into sentences."""
    try:
        yield
    except KafkaException as error:
        raise explain(error.args[0], settings) from error


def explain(error: KafkaError, settings: Settings) -> ProxyError:
    """The sentence for an error of librdkafka or of the broker."""
    bootstrap = settings.bootstrap_servers
    if error.code() in LOCKED_OUT:
        return BrokerRefused(
            f"The broker at {bootstrap} does not let the proxy in: {error.str()}.",
            "Correct `security.protocol`, `sasl.*` or `ssl.*` under `kafka`.",
        )
    if error.code() in UNREACHABLE:
        return BrokerUnreachable(bootstrap, error.str().rstrip("."))
    if error.code() == KafkaError._INVALID_ARG:  # noqa: SLF001
        return SettingsError(f"librdkafka does not accept what is under `kafka`: {error.str()}.")
    return BrokerRefused(f"The broker at {bootstrap} refused: {error.str()} ({error.name()}).")


def client_config(settings: Settings, **own: str | int | bool) -> dict[str, Any]:
    """librdkafka settings of a client; keyword `a_b` is `a.b` and beats the settings."""
    named = {name.replace("_", "."): value for name, value in own.items()}
    quiet = {"log_level": 0, "client.id": "kafka-delay-proxy-cli"}
    return {**quiet, **settings.kafka, **named}


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers in order; none at all is an empty list.

    Of a record with a header name that is not UTF-8 the client library can show none: one mark
    stands for them.
    """
    try:
        headers = read_headers(message) or []
    except (SystemError, UnicodeDecodeError):
        return [(UNREADABLE, None)]
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, raw.encode() if isinstance(raw, str) else raw) for name, raw in pairs]
