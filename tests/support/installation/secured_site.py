"""Secured broker with its certificates and client settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.installation.certificates import Authority, Identity
from tests.support.installation.installation import SESSION_TIMEOUT_MS
from tests.support.installation.secured_broker import (
    HOST,
    LOGINS,
    MUTUAL,
    TLS,
    TOKENS,
    SecuredBroker,
)
from tests.support.installation.token_endpoint import TokenEndpoint

USER, PASSWORD = "delay-proxy", "a-password-that-must-not-be-shown"
KEY_PASSWORD: Final = "a-key-password-that-must-not-be-shown"


@dataclass(frozen=True, slots=True)
class SecuredSite:
    """Secured broker. `folder` holds `ca.pem` and the client's `certificate.pem` and `key.pem`."""

    broker: SecuredBroker
    tokens: TokenEndpoint
    authority: Authority
    own: Identity
    folder: Path

    def kafka(self, listener: str, **changed: str) -> dict[str, str]:
        """Return the consumer settings for this listener. Keyword `a_b` becomes `a.b`."""
        session = {"session.timeout.ms": str(SESSION_TIMEOUT_MS)}
        return {**session, **self.connection(listener, **changed)}

    def connection(self, listener: str, **changed: str) -> dict[str, str]:
        """Return the settings for this listener that all kinds of clients share."""
        named = {name.replace("_", "."): value for name, value in changed.items()}
        bootstrap = {"bootstrap.servers": self.broker.address(listener)}
        return {**bootstrap, **self._tls(), **self._login(listener), **named}

    def client_certificate(self, identity: Identity) -> None:
        identity.write(self.folder)

    def trust(self, authority: Authority) -> None:
        (self.folder / "ca.pem").write_text(authority.certificate, "ascii")

    def _tls(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.folder / "ca.pem")}

    def _login(self, listener: str) -> dict[str, str]:
        if listener == MUTUAL:
            return {
                "ssl.certificate.location": str(self.folder / "certificate.pem"),
                "ssl.key.location": str(self.folder / "key.pem"),
            }
        if listener in LOGINS:
            login = {"sasl.username": USER, "sasl.password": PASSWORD}
            return {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": LOGINS[listener],
                **(self._token() if listener == TOKENS else login),
            }
        assert listener == TLS
        return {}

    def _token(self) -> dict[str, str]:
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": PASSWORD,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
        }


@contextmanager
def secured_site(folder: Path, *, open_to_all: bool) -> Iterator[SecuredSite]:
    authority = Authority()
    own = authority.issue("broker", [HOST])
    users = {USER: PASSWORD}
    with (
        TokenEndpoint(folder, authority.key, users) as tokens,
        SecuredBroker(
            folder / "broker", authority, own, tokens, users, open_to_all=open_to_all
        ) as broker,
    ):
        site = SecuredSite(broker, tokens, authority, own, folder)
        site.trust(authority)
        site.client_certificate(authority.issue(USER))
        broker.add_user(USER, PASSWORD)
        yield site
