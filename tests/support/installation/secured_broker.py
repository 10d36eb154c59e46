"""Broker with TLS, mutual TLS, three kinds of logins over TLS, and ACLs. The plain-text listener is
for the tests. It allows everything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from unittest.mock import patch

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from proxy.embedded import EmbeddedBroker
from proxy.embedded.server import pick_free
from tests.support.installation.certificates import Authority, Identity
from tests.support.installation.token_endpoint import TokenEndpoint
from tests.support.quiet_clients import admin_client

HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 180
ITERATIONS: Final = 4096
TLS, MUTUAL, SCRAM, PLAIN, TOKENS = "TLS", "MUTUAL", "SCRAM", "PLAIN", "TOKENS"
LOGINS: Final = {SCRAM: "SCRAM-SHA-512", PLAIN: "PLAIN", TOKENS: "OAUTHBEARER"}
"""Listeners that require a login, with their mechanisms."""
LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    TLS: "SSL",
    MUTUAL: "SSL",
    **dict.fromkeys(LOGINS, "SASL_SSL"),
}
"""Listeners with their protocols."""
WITH_ACLS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
}
SECURITY: Final = "org.apache.kafka.common.security"
MODULES: Final = {
    SCRAM: f"{SECURITY}.scram.ScramLoginModule required;",
    TOKENS: f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";',
}
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
LONGEST_SESSION_MS: Final = 3_600_000
"""A session with a token ends with the token, or sooner."""


class SecuredBroker:
    """One broker with a listener for each of `LISTENERS`. `authority` signs the broker's
    certificate, and the mutual listener trusts it. Normal users have only the rights of
    `tests.support.installation.rights`. With `open_to_all` they have all rights. `users` have
    passwords for PLAIN. The endpoint `tokens` signs the accepted tokens."""

    def __init__(
        self,
        folder: Path,
        authority: Authority,
        identity: Identity,
        tokens: TokenEndpoint,
        users: Mapping[str, str],
        *,
        open_to_all: bool = False,
    ) -> None:
        self._folder, self._open_to_all = folder, open_to_all
        self._tokens, self._users = tokens, users
        self._ports = {name: pick_free(HOST) for name in (*LISTENERS, "CONTROLLER")}
        self._broker = self._made(authority, identity)

    @property
    def bootstrap(self) -> str:
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    def add_user(self, name: str, password: str) -> None:
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        wanted = UserScramCredentialUpsertion(name, secret, password.encode())
        admin = admin_client(self.bootstrap)
        admin.alter_user_scram_credentials([wanted])[name].result(TIMEOUT_S)

    def restart(self, authority: Authority, identity: Identity) -> None:
        self._broker.stop()
        self._broker = self._made(authority, identity)
        self._start()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._broker.kill()

    def _start(self) -> None:
        allowed = f"-D{ALLOWED_URLS}={self._tokens.keys_url}"
        options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {allowed}"
        with patch.dict(os.environ, {"JDK_JAVA_OPTIONS": options}):
            self._broker.start()

    def _made(self, authority: Authority, identity: Identity) -> EmbeddedBroker:
        access = {**WITH_ACLS, "allow.everyone.if.no.acl.found": str(self._open_to_all).lower()}
        properties = {**self._listeners(), **_tls(authority, identity), **access}
        return EmbeddedBroker(self._folder, port=self._ports["PLAINTEXT"], overrides=properties)

    def _listeners(self) -> Mapping[str, str]:
        protocols = {**LISTENERS, "CONTROLLER": "PLAINTEXT"}
        return {
            **self._logins(),
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in protocols),
            "advertised.listeners": ",".join(f"{n}://{self.address(n)}" for n in LISTENERS),
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "controller.quorum.voters": f"1@{self.address('CONTROLLER')}",
            "listener.name.mutual.ssl.client.auth": "required",
        }

    def _logins(self) -> Mapping[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        modules = {**MODULES, PLAIN: f"{SECURITY}.plain.PlainLoginModule required {users};"}
        found = {
            "sasl.oauthbearer.jwks.endpoint.url": self._tokens.keys_url,
            "sasl.oauthbearer.expected.issuer": self._tokens.issuer,
            "sasl.oauthbearer.expected.audience": self._tokens.audience,
        }
        for listener, mechanism in LOGINS.items():
            name = f"listener.name.{listener.lower()}"
            found[f"{name}.sasl.enabled.mechanisms"] = mechanism
            found[f"{name}.{mechanism.lower()}.sasl.jaas.config"] = modules[listener]
        tokens = "listener.name.tokens.oauthbearer"
        validator = f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        found[f"{tokens}.sasl.server.callback.handler.class"] = validator
        found[f"{tokens}.connections.max.reauth.ms"] = str(LONGEST_SESSION_MS)
        return found


def _tls(authority: Authority, identity: Identity) -> Mapping[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.certificate,
        "ssl.keystore.key": identity.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate,
    }
