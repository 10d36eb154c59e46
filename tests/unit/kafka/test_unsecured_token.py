"""Test tokens equal librdkafka's, and are renewed without a poll."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode
from typing import Any

from proxy.config.settings import Settings
from proxy.kafka.access import client_config
from proxy.kafka.client_settings import common_config
from proxy.logins import UNSECURED, unsecured_token


def parts_of(token: str) -> list[Any]:
    header, claims, signature = token.split(".")
    assert signature == ""
    return [json.loads(urlsafe_b64decode(part + "==")) for part in (header, claims)]


def test_a_token_says_who_it_is_for_and_when_it_ends() -> None:
    now_s = time.time()
    token, end_s, principal, extensions = unsecured_token("principal=admin lifeSeconds=30")
    header, claims = parts_of(token)
    assert (header, claims["sub"], principal, extensions) == ({"alg": "none"}, "admin", "admin", {})
    assert claims["exp"] == end_s
    assert 30 <= end_s - now_s < 31


def test_a_token_has_scopes_extensions_and_claims_of_other_names() -> None:
    token, *_, extensions = unsecured_token(
        "principalClaimName=who principal=a scopeClaimName=for scope=r,w extension_pool=blue"
    )
    _header, claims = parts_of(token)
    assert (claims["who"], claims["for"]) == ("a", ["r", "w"])
    assert extensions == {"pool": "blue"}


def test_every_client_gets_the_callback_only_where_it_is_asked_for() -> None:
    asked, others = Settings(kafka={UNSECURED: "true"}), Settings(kafka={UNSECURED: "false"})
    for config_of in (common_config, client_config):
        assert config_of(asked)["oauth_cb"] is unsecured_token
        assert UNSECURED not in config_of(asked)
        assert "oauth_cb" not in config_of(others)
