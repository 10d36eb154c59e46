"""The child of `dev` connects to the embedded broker in any environment."""

from pathlib import Path

import pytest

from proxy.cli.terminal import settings_for_embedded
from proxy.cli.trial import ProxyEnded, ProxyProcess


def test_credentials_for_another_broker_do_not_reach_the_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DELAY_PROXY_KAFKA__SASL_PASSWORD", "x")
    monkeypatch.setenv("DELAY_PROXY_KAFKA", "{}")
    monkeypatch.setenv("DELAY_PROXY_CONFIG", "proxy.yaml")
    monkeypatch.setenv("DELAY_PROXY_LOG__LEVEL", "debug")
    broker = {"DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    child = ProxyProcess(broker, 1)
    ours = {n: v for n, v in child.environment.items() if n.startswith("DELAY_PROXY_")}
    assert ours == {**broker, "DELAY_PROXY_LOG__LEVEL": "debug"}
    assert settings_for_embedded("127.0.0.1:1").kafka == {"bootstrap.servers": "127.0.0.1:1"}


def test_a_child_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "proxy.log"
    with ProxyProcess({"DELAY_PROXY_NONSENSE": "1"}, 1, log) as child:
        with pytest.raises(ProxyEnded, match="ended unexpectedly with exit code 1") as caught:
            child.await_ready(30)
        assert "DELAY_PROXY_NONSENSE is not a setting" in str(caught.value)
    assert child.stop() == 1
