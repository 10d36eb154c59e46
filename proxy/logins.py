"""Login tokens that librdkafka does not make itself.

A thread of librdkafka calls `msk_token` or `unsecured_token` before a token expires. So an idle
client stays logged in.
"""

import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from proxy.errors import SecretUnreadable, SettingsError, require

log = structlog.get_logger(__name__)

SECRETS: Final = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password")
"""Settings whose value may be in a file. The setting `<name>.location` is the file's path."""
MOST_SECRET: Final = 65_536
MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
WORDS: Final = "sasl.oauthbearer.config"
MSK: Final = "AWS_MSK_IAM"
MSK_WORDS: Final = frozenset({"region", "role", "profile"})
REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""Environment variables that name the AWS region."""

UNSECURED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
EXTENSION: Final = "extension_"
LIFE_S: Final = 3600.0

Token = tuple[str, float, str, dict[str, str]]
"""Token, its expiry in epoch seconds, principal, SASL extensions."""


def with_login(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the secrets from files, and a callback for MSK's or unsecured tokens.

    librdkafka renews its own unsecured tokens only while a client is polled, so an idle client
    would be logged out. Raises ExtraMissing or SettingsError.
    """
    own = with_secrets(kafka)
    if is_msk(own):
        require("msk", f"`sasl.mechanism: {MSK}`")
        _msk_words(str(own.get(WORDS, "")))
        own = {name: value for name, value in own.items() if name not in MECHANISMS}
        return {**own, MECHANISMS[0]: "OAUTHBEARER", "oauth_cb": msk_token}
    if str(own.get(UNSECURED)).lower() == "true" and "oauth_cb" not in own:
        del own[UNSECURED]
        own["oauth_cb"] = unsecured_token
    return own


def with_secrets(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the present contents of the files for secrets.

    Raises SecretUnreadable.
    """
    own = dict(kafka)
    for name in SECRETS:
        path = own.pop(f"{name}.location", None)
        if path is not None:
            own[name] = _secret_of(name, Path(path))
    return own


def _secret_of(name: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            secret = file.read(MOST_SECRET).rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SecretUnreadable(
            f"The file {path} of `{name}.location` under `kafka` cannot be read: {why}.",
            "Correct the path, or let the proxy's user read the file.",
        ) from None
    if not secret:
        raise SecretUnreadable(f"The file {path} of `{name}.location` under `kafka` is empty.")
    return secret


def is_msk(kafka: Mapping[str, Any]) -> bool:
    """Return whether the client logs in with an identity of AWS."""
    return MSK in {str(kafka.get(name)).upper() for name in MECHANISMS}


def msk_token(config: str) -> Token:
    """Sign a token with the identity of AWS that `config` and the environment name.

    A role is assumed anew for each token. The log names the cause of a failure, because librdkafka
    drops the cause.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer

    try:
        said = _msk_words(config)
        region = said["region"]
        if role := said.get("role"):
            os.environ.setdefault(REGIONS[1], region)  # AWS's STS client reads only this variable
            token, end_ms = Signer.generate_auth_token_from_role_arn(region, role)
        elif profile := said.get("profile"):
            token, end_ms = Signer.generate_auth_token_from_profile(region, profile)
        else:
            token, end_ms = Signer.generate_auth_token(region)
    except Exception as error:
        # Without any credentials the signer fails at an attribute of None.
        why = "no credentials were found" if isinstance(error, AttributeError) else str(error)
        log.error("AWS gives no token for the login to Kafka", why=why)
        raise
    return token, end_ms / 1000, "", {}


def _msk_words(config: str) -> dict[str, str]:
    said = words(config)
    if unknown := ", ".join(sorted(said.keys() - MSK_WORDS)):
        raise SettingsError(
            f"`{WORDS}` under `kafka` has unknown words: {unknown}.",
            f"With {MSK}, write region=…, and role=… or profile=… if needed.",
        )
    found = (os.environ[name] for name in REGIONS if os.environ.get(name))
    if region := said.get("region") or next(found, None):
        return {**said, "region": region}
    raise SettingsError(
        f"`sasl.mechanism: {MSK}` needs the region of the cluster.",
        f"Set `{WORDS}: region=…` under `kafka`, or the variable {REGIONS[0]}.",
    )


def unsecured_token(config: str) -> Token:
    """Make a token from `sasl.oauthbearer.config` (librdkafka's CONFIGURATION.md)."""
    said = words(config)
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


def login_words(kafka: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of `sasl.oauthbearer.config`."""
    return words(str(kafka.get(WORDS, "")))


def words(config: str | None) -> dict[str, str]:
    """Parse `name=value name=value`."""
    return dict(word.partition("=")[::2] for word in (config or "").split())


def _part(content: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
