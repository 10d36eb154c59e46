"""Where a record may be sent, by names alone; whether a topic exists is asked when it fires."""

from collections.abc import Mapping

from proxy.records.header_text import remember, shown
from proxy.records.headers import TOPIC
from proxy.records.rejection import Rejection
from proxy.requests.policy import Policy
from proxy.requests.topic_names import TOPIC_NAME_RULE, is_legal_topic


class TargetNames:
    """Names of topics under one policy. `known`: the answers for values of `timer-topic`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.known: dict[bytes | None, str | Rejection] = {}

    def target(self, asked: Mapping[str, bytes | None]) -> str | Rejection:
        """The topic that `timer-topic` asks for."""
        raw = asked.get(TOPIC)
        if raw is None:
            return _missing(asked)
        return self.known.get(raw) or self._learn(raw)

    def named_in(self, header: str, raw: bytes | None) -> str | Rejection:
        """The topic that another header asks for."""
        return self._named(header, raw or b"")

    def derived(self, prefix: str, group: str, raw: bytes) -> str | Rejection:
        """A topic whose name the proxy makes of a consumer group's, which `raw` has."""
        name = prefix + group
        if not is_legal_topic(name):
            return Rejection(
                "target-illegal",
                f"{shown(raw)} makes the topic name {name[:80]!r}: {TOPIC_NAME_RULE}",
            )
        policy = self._policy
        refusal = policy.refusal(name, is_derived=True) or policy.group_refusal(group)
        return Rejection("target-refused", refusal) if refusal else name

    def _learn(self, raw: bytes) -> str | Rejection:
        answer = self._named(TOPIC, raw)
        remember(self.known, raw, answer)
        return answer

    def _named(self, header: str, raw: bytes) -> str | Rejection:
        name = raw.decode("utf-8", "replace")
        if not is_legal_topic(name):
            return Rejection("target-illegal", f"{header} is {shown(raw)}: {TOPIC_NAME_RULE}")
        refusal = self._policy.refusal(name)
        return Rejection("target-refused", refusal) if refusal else name


def _missing(asked: Mapping[str, bytes | None]) -> Rejection:
    alike = [name for name in asked if name.lower() == TOPIC and name != TOPIC]
    hint = f" (found {alike[0]!r}: header names are lower case)" if alike else ""
    return Rejection("target-missing", f"the record has no {TOPIC} header{hint}")
