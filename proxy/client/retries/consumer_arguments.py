"""What a retry consumer is given: refused is what it cannot work with, or would lose records by."""

from collections.abc import Sequence
from inspect import iscoroutinefunction

from proxy.client.errors import ConfigRefused
from proxy.client.retries.received import BY_PATTERN
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic


def checked_topics(topics: object, group: object, ingress: object) -> list[str]:
    """The topics to be read. Raises ConfigRefused, also for a group that no topic can be named
    after.
    """
    _refuse_illegal("group", group, f"retry.{group}" if isinstance(group, str) and group else "")
    _refuse_illegal("ingress", ingress, ingress)
    if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
        raise ConfigRefused(f"topics is {topics!r}: give a list of at least one topic")
    for topic in topics:
        if not isinstance(topic, str) or not topic.startswith(BY_PATTERN):
            _refuse_illegal("topics", topic, topic)
        if topic in {f"dlq.{group}", ingress}:
            raise ConfigRefused(
                f"topics has {topic!r}, where this consumer's failures go: they would never end; "
                "read it in a group of its own"
            )
    return list(topics)


def checked_retry_topic(given: object, group: str) -> str:
    """The topic where retries come. Raises ConfigRefused."""
    if given is None:
        return f"retry.{group}"
    return _refuse_illegal("retry_topic", given, given)


def refuse_unusable_handler(handler: object) -> None:
    """Raises ConfigRefused: what it returns would be taken for success, and never run."""
    if not callable(handler):
        raise ConfigRefused(f"the handler is {handler!r}: give a function of one record")
    if iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__):
        raise ConfigRefused(
            f"the handler {handler!r} is a coroutine function, which nobody would await: use "
            "AsyncRetryConsumer"
        )


def _refuse_illegal(name: str, given: object, topic: object) -> str:
    if isinstance(topic, str) and is_legal_topic(topic):
        return topic
    raise ConfigRefused(f"{name} is {given!r}, which names no topic: {TOPIC_NAME_RULE}")
