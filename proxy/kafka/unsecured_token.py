"""Unsecured OAUTHBEARER tokens, for trials (`enable.sasl.oauthbearer.unsecure.jwt`).

librdkafka makes them, too, but renews them only while a client is polled. A client that rests is
logged out. A callback in Python is served by a thread of librdkafka's own, as OIDC is.
"""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

UNSECURED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
EXTENSION: Final = "extension_"
LIFE_S: Final = 3600.0

Token = tuple[str, float, str, dict[str, str]]
"""The token, the time at which it ends in seconds, the principal, SASL extensions."""


def with_token_callback(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Add a callback to a client's settings if they ask for unsecured tokens."""
    own = {name: value for name, value in kafka.items() if name != UNSECURED}
    if str(kafka.get(UNSECURED)).lower() != "true" or "oauth_cb" in kafka:
        return dict(kafka)
    return {**own, "oauth_cb": unsecured_token}


def unsecured_token(config: str) -> Token:
    """Make a token from `sasl.oauthbearer.config`. It has the same keys as in librdkafka.

    Source: librdkafka's CONFIGURATION.md.
    """
    said = dict(word.partition("=")[::2] for word in config.split())
    now_s = time.time()
    end_s = now_s + float(said.get("lifeSeconds", LIFE_S))
    principal = said.get("principal", "")
    claims = {said.get("principalClaimName", "sub"): principal, "iat": now_s, "exp": end_s}
    if scope := said.get("scope"):
        claims[said.get("scopeClaimName", "scope")] = scope.split(",")
    extensions = {
        name.removeprefix(EXTENSION): value
        for name, value in said.items()
        if name.startswith(EXTENSION)
    }
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", end_s, principal, extensions


def _part(content: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
