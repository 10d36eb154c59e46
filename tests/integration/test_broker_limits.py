"""Broker limits that contradict the proxy's settings are reported, and not retried for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.check_broker import broker_findings
from proxy.cli.check_configs import Severity
from proxy.config.settings import Settings
from tests.conftest import StartBroker
from tests.support.installation.installation import Installation

pytestmark = pytest.mark.integration

LIMITS = {"group.min.session.timeout.ms": "30000", "transaction.max.timeout.ms": "5000"}


def test_broker_limits_end_the_proxy_with_the_remedy(
    own_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = own_broker(overrides=LIMITS)
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})
    stops = [one for one in broker_findings(settings) if one.severity is Severity.STOP]
    assert sorted(one.found.split()[0] for one in stops) == sorted(LIMITS)
    assert "rdkafka" not in capfd.readouterr().err, "the client library prints nothing of its own"

    installation = Installation(broker.bootstrap_servers, tmp_path, partitions=1)
    try:
        short = {"transaction.timeout.ms": "5000"}
        allowed = {**short, "session.timeout.ms": "30000"}
        beyond_transactions = installation.proxy("one")
        beyond_sessions = installation.proxy("two", kafka=installation.kafka(**short))
        within = installation.proxy("three", kafka=installation.kafka() | allowed)
        beyond_transactions.start()
        assert beyond_transactions.wait() == 1
        assert "Set `transaction.timeout.ms` under `kafka`" in beyond_transactions.log
        beyond_sessions.start()
        assert beyond_sessions.wait() == 1
        assert "Set `session.timeout.ms` under `kafka`" in beyond_sessions.log
        within.start_ready()
        installation.stop_proxies()
    finally:
        installation.close()
