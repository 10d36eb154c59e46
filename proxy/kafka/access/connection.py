"""Short-lived Kafka clients for a person's hands."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import TopicDescription  # type: ignore[attr-defined]

from proxy.config.settings import Settings
from proxy.errors import ProxyError
from proxy.kafka.access.broker_errors import HearingAdminClient, explain
from proxy.kafka.access.rights import is_refusal
from proxy.kafka.client_logs import silent_logger
from proxy.kafka.unsecured_token import with_token_callback


class TopicUnknown(ProxyError):
    """A topic the person named does not exist on the broker."""

    def __init__(self, topic: str, bootstrap: str) -> None:
        super().__init__(
            f"The topic {topic} does not exist at {bootstrap}.",
            "Correct its name, or create it first.",
        )


class Connection:
    """An admin client with the settings' connection. No question waits longer than `limit_s`.

    Raises SettingsError when librdkafka does not take the settings.
    """

    limit_s = 8.0

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.admin = HearingAdminClient(settings, client_config(settings))

    def sentence(self, error: KafkaException) -> ProxyError:
        """What to tell of an error of this client; the true cause, where it was heard."""
        return self.admin.sentence(error)

    def describe_topic(self, topic: str, operation: str = "Describe") -> TopicDescription:
        """The broker's description; asking never creates the topic. `operation`: what is to be done
        there, in the words of Kafka's rights; it includes Describe.

        Raises TopicUnknown, BrokerUnreachable, BrokerRefused.
        """
        answers = self.admin.describe_topics(TopicCollection([topic]), request_timeout=self.limit_s)
        try:
            description: TopicDescription = answers[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicUnknown(topic, self._settings.bootstrap_servers) from None
            if is_refusal(error.args[0]):
                raise explain(error.args[0], self._settings, topic, operation) from None
            raise self.sentence(error) from None
        return description


def client_config(settings: Settings, **own: str | int | bool) -> dict[str, Any]:
    """librdkafka settings of a client; keyword `a_b` is `a.b` and beats the settings."""
    named = {name.replace("_", "."): value for name, value in own.items()}
    quiet = {"log_level": 0, "logger": silent_logger(), "client.id": "kafka-delay-proxy-cli"}
    return {**quiet, **with_token_callback(settings.kafka), **named}
