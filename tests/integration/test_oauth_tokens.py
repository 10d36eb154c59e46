"""A listener with OAUTHBEARER tokens, which expire while the proxy is idle."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proxy.embedded.server import pick_free
from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

HOST = "127.0.0.1"
LIFE_S = 10
LIVES = 3
LOGIN = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="admin";'
)


def with_tokens(plain: int, tokens: int) -> dict[str, str]:
    controller = pick_free(HOST)
    listeners = f"PLAINTEXT://{HOST}:{plain},OAUTH://{HOST}:{tokens}"
    return {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,OAUTH:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.connections.max.reauth.ms": "3600000",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": LOGIN,
    }


def test_tokens_are_renewed_while_the_proxy_rests(own_broker: StartBroker, tmp_path: Path) -> None:
    plain, tokens = pick_free(HOST), pick_free(HOST)
    broker = own_broker(port=plain, overrides=with_tokens(plain, tokens))
    installation = Installation(broker.bootstrap_servers, tmp_path, partitions=1)
    try:
        kafka = {
            "bootstrap.servers": f"{HOST}:{tokens}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal=admin lifeSeconds={LIFE_S}",
        }
        target = installation.target()
        proxy = installation.proxy(kafka=installation.kafka() | kafka)
        proxy.start_ready()
        time.sleep(LIFE_S * LIVES)
        installation.send([Outgoing(headers=[("timer-topic", target.encode())])])
        assert installation.judge().counts == {"delivered": 1}
        assert "uthentication" not in proxy.log
    finally:
        installation.close()
