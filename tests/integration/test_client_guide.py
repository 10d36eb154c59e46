"""Every code block of the client's guide works, in order."""

from __future__ import annotations

import asyncio
import re
import signal
import uuid
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.cimpl import NewTopic

import kafka_delay
from kafka_delay import (
    AsyncDelayProducer,
    AsyncRetryConsumer,
    DelayProducer,
    RetryConsumer,
    TransactionalDelayProducer,
)
from tests.support.quiet_clients import admin_client
from tests.support.records import read_to_end

pytestmark = pytest.mark.integration

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
WITHIN_S = 180


def _pieces() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def _ensure(kafka: str, *topics: str) -> None:
    admin = admin_client(kafka)
    missing = [topic for topic in topics if topic not in admin.list_topics(timeout=WITHIN_S).topics]
    for made in admin.create_topics([NewTopic(topic, 4) for topic in missing]).values():
        made.result(WITHIN_S)


def test_the_guide_s_code_runs_as_it_stands(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ingress = f"guide-{uuid.uuid4().hex[:8]}"
    _ensure(kafka, ingress, "audit")
    for made in (DelayProducer, TransactionalDelayProducer, AsyncDelayProducer):
        defaults = cast(dict[str, Any], made.__init__.__kwdefaults__)
        monkeypatch.setitem(defaults, "ingress", ingress)
    monkeypatch.setenv("RETRY_SIGNING_KEY", uuid.uuid4().hex)
    monkeypatch.setattr(RetryConsumer, "run", RetryConsumer.stop)
    monkeypatch.setattr(AsyncRetryConsumer, "run", lambda _: asyncio.sleep(0))
    before = signal.getsignal(signal.SIGTERM)
    told: dict[str, Any] = {}
    try:
        for piece in _pieces():
            code = piece.replace("localhost:9092", kafka).replace("payments.checks", f"{ingress}.c")
            code = code.replace('"timer.ingress"', f'"{ingress}"')
            exec(compile(code, str(GUIDE), "exec"), told)  # noqa: S102 (the guide is our own)
        told["producer"].close()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(told["receipts"]) == 500
    assert told["result"].state is kafka_delay.State.COMMIT
    assert told["database"]
    sent = 4 + 3 + 2 + 1 + 500 + 500 + 2 + 4 + 12
    assert len(read_to_end(kafka, ingress, sent)) == sent


def test_the_guide_names_every_error() -> None:
    text = GUIDE.read_text("utf-8")
    errors = [
        name
        for name in kafka_delay.__all__
        if isinstance(found := getattr(kafka_delay, name), type) and issubclass(found, Exception)
    ]
    assert len(errors) > 10
    assert not [name for name in errors if f"`{name}`" not in text and f".{name}`" not in text]
