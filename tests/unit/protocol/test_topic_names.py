"""Kafka's own rule for topic names."""

import pytest

from proxy.protocol.policy import is_legal_topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249])
def test_legal_topic_names(name: str) -> None:
    assert is_legal_topic(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "a/b", "a\n", "ä"])
def test_names_that_kafka_refuses(name: str) -> None:
    assert not is_legal_topic(name)
