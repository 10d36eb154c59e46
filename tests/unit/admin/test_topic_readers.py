"""Lists of dead-letter topics, with a made-up broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.admin import topic_readers
from proxy.admin.topic_readers import TopicReaders
from proxy.config.settings import Settings, TopicSettings


class MadeUpConnection:
    def __init__(self, _settings: Settings) -> None:
        self.topics = ["dlq.", "dlq.billing", "dlq.billing.replayed", "dlq.timer", "orders"]

    def list_topics(self, **_: object) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self.topics, SimpleNamespace(partitions={})))


def test_the_proxys_own_topic_is_no_groups_whatever_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_readers, "Connection", MadeUpConnection)
    settings = Settings(topics=TopicSettings(dead_letters="dlq.timer"))
    found = [(one.topic, one.group) for one in TopicReaders(settings).topics()]
    assert found == [("dlq.timer", None), ("dlq.billing", "billing")]
