"""Fixtures of the client's tests."""

import pytest

from tests.unit.client.mock_kafka import MockKafka


@pytest.fixture(scope="session")
def mock_kafka() -> MockKafka:
    return MockKafka()
