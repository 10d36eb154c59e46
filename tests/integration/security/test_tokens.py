"""Tokens expire while the proxy works, and are renewed. No token, no delivery, and no loss."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from kafka_delay import DelayProducer, Received
from proxy.logins import MSK
from tests.integration.retry_world import CLASSIC, Relay, Running, World
from tests.integration.security.commands import run_check
from tests.support.installation.installation import Installation
from tests.support.installation.secured_broker import TOKENS
from tests.support.installation.secured_site import PASSWORD, USER, SecuredSite
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

LIFE_S = 40
"""librdkafka renews a token after 80 % of its life, and logs in again after 90 % or later."""
SHORT_LIFE_S = 15
RENEWALS = 2
WITHIN_S = 180
REGION = "eu-central-1"
SIGNER = """\
import base64, json, urllib.request

class MSKAuthTokenProvider:
    @staticmethod
    def generate_auth_token(region):
        asked = urllib.request.Request({url!r}, b"scope=" + region.encode())
        asked.add_header("Authorization", "Basic " + {secret!r})
        with urllib.request.urlopen(asked) as answer:
            token = json.load(answer)["access_token"]
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return token, int(claims["exp"] * 1000)
"""
"""Stands for the signer of AWS. It gives tokens that this broker accepts."""


@pytest.fixture(autouse=True)
def _usual_tokens(site: SecuredSite) -> Iterator[None]:
    tokens = site.tokens
    usual = tokens.life_s
    yield
    tokens.life_s, tokens.failure, tokens.claims = usual, None, {}


@pytest.fixture(params=["oidc", "msk"])
def kafka(
    request: pytest.FixtureRequest,
    site: SecuredSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    if request.param == "oidc":
        return site.kafka(TOKENS)
    secret = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    folder = tmp_path / "modules"
    folder.mkdir()
    signer = SIGNER.format(url=site.tokens.url, secret=secret)
    (folder / "aws_msk_iam_sasl_signer.py").write_text(signer, "ascii")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("AWS_REGION", REGION)
    given = site.kafka(TOKENS, sasl_mechanism=MSK)
    return {name: text for name, text in given.items() if ".oauthbearer." not in name}


def test_tokens_are_renewed_while_records_are_delivered(
    installation: Installation, site: SecuredSite, kafka: dict[str, str]
) -> None:
    site.tokens.life_s = LIFE_S
    told = Story(installation, Rules(), kafka=kafka)
    orders = installation.target()
    told.proxy.start_ready()
    until_s = time.time() + (RENEWALS + 0.5) * LIFE_S
    sent = 0

    def is_over() -> bool:
        nonlocal sent
        told.tell("one of many", topic=orders, delay="300ms")
        told.send()
        sent += 1
        return time.time() > until_s

    wait_for(is_over, WITHIN_S, "the tokens to expire several times")
    told.end()
    assert len(told.delivered("one of many")) == sent
    assert any(claims["iat"] > until_s - LIFE_S for claims in site.tokens.issued)
    assert "session lost" not in told.proxy.log


def test_without_tokens_records_wait_and_then_arrive_once(
    installation: Installation, site: SecuredSite, kafka: dict[str, str]
) -> None:
    site.tokens.life_s = SHORT_LIFE_S
    told = Story(installation, Rules(), kafka=kafka)
    orders = installation.target()
    told.proxy.start_ready()
    told.tell("before", topic=orders)
    told.send()
    installation.await_ends(1)

    site.tokens.failure = HTTPStatus.SERVICE_UNAVAILABLE
    wait_for(lambda: told.proxy.get("/readyz")[0] == 503, WITHIN_S, "the proxy to be logged out")
    told.tell("meanwhile", topic=orders)
    told.send()
    # librdkafka asks again for 20 s before it names the cause.
    wait_for(lambda: "token" in told.proxy.log, WITHIN_S, "the cause in the log")

    site.tokens.failure = None
    installation.await_ends(2)
    told.end()
    assert len(told.delivered("before")) == len(told.delivered("meanwhile")) == 1


def test_all_kafka_clients_of_the_python_client_use_its_callback(site: SecuredSite) -> None:
    """The retry consumer needs an admin client, a consumer and a producer."""
    world = World(site.broker.bootstrap)
    handled = []

    def token(_config: str) -> tuple[str, float]:
        signed = site.tokens.token(USER)
        return signed, site.tokens.issued[-1]["exp"]

    def fail_once(record: Received) -> None:
        handled.append(record.value)
        if len(handled) == 1:
            raise ValueError("the first delivery fails")

    names = ("bootstrap.servers", "security.protocol", "ssl.ca.location", "sasl.mechanism")
    given = site.connection(TOKENS)
    login = {**{name: given[name] for name in names}, "oauth_cb": token}
    with Relay(world), Running(world.consumer(fail_once, {**CLASSIC, **login})):
        world.write(Outgoing(b"k", b"v"))
        wait_for(lambda: len(handled) == 2, WITHIN_S, "the record to be retried")
    with DelayProducer(login, ingress=world.ingress) as producer:
        receipt = producer.send(world.orders, "v", key="k", delay="1h").result(WITHIN_S)
    assert receipt.origin.startswith(world.ingress)


def test_a_token_for_another_audience_is_rejected_with_a_sentence(
    installation: Installation, site: SecuredSite
) -> None:
    site.tokens.claims = {"aud": "another"}
    (said,) = run_check(installation.proxy(kafka=site.kafka(TOKENS))).stops
    assert "rejected the proxy's login" in said
    assert "`sasl.*`" in said
