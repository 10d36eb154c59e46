"""Tokens for MSK are signed for the named region and identity. Secrets are read from files."""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64decode
from calendar import timegm
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ProfileNotFound
from structlog.testing import capture_logs

from proxy.config.settings import Settings
from proxy.errors import SettingsError
from proxy.kafka.access import client_config
from proxy.kafka.client_settings import common_config
from proxy.logins import MSK, SECRETS, msk_token, with_login

LIFE_S = 900
ASSUMED = """\
<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
<SessionToken>of-the-role</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""
"""The answer of AWS STS."""


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the signer find only the credentials of the test."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    profiles = tmp_path / "credentials"
    profiles.write_text("[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@contextmanager
def sts(asked: list[dict[str, list[str]]]) -> Iterator[str]:
    """Run a stub of AWS STS. Yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append(parse_qs(form))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ASSUMED.encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def signed(config: str) -> tuple[str, dict[str, str]]:
    """Return host and query of the address that is the token."""
    token, end_s, _principal, _extensions = msk_token(config)
    address = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    signed_s = timegm(time.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    assert end_s == signed_s + int(query["X-Amz-Expires"]) == signed_s + LIFE_S
    assert abs(time.time() - signed_s) < LIFE_S / 2
    assert query["Action"] == "kafka-cluster:Connect"
    return str(address.hostname), query


def test_a_token_for_msk_is_an_address_signed_with_the_identity_of_the_process() -> None:
    host, query = signed("")
    assert host == "kafka.eu-central-1.amazonaws.com"
    assert query["X-Amz-Credential"].startswith("AKIAOWN/")
    assert query["X-Amz-Signature"]


def test_a_named_region_and_profile_count() -> None:
    host, query = signed("region=us-west-2 profile=other")
    assert host == "kafka.us-west-2.amazonaws.com"
    assert query["X-Amz-Credential"].startswith("AKIAOTHER/")


def test_a_role_is_assumed_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "")  # is put back after the test
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    asked: list[dict[str, list[str]]] = []
    with sts(asked) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
        for _ in range(2):
            _host, query = signed("role=arn:aws:iam::1:role/delay-proxy")
            assert query["X-Amz-Credential"].startswith("ASIAROLE/")
            assert query["X-Amz-Security-Token"] == "of-the-role"
    assert [one["RoleArn"] for one in asked] == [["arn:aws:iam::1:role/delay-proxy"]] * 2


def test_the_cause_of_a_missing_token_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    for config, why in (("", "no credentials"), ("profile=unknown", "unknown")):
        with capture_logs() as logged, pytest.raises((AttributeError, ProfileNotFound)):
            msk_token(config)
        assert why in logged[0]["why"]


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_every_client_gets_the_callback_for_msk(name: str) -> None:
    settings = Settings(kafka={name: MSK})
    for config_of in (common_config, client_config):
        config = config_of(settings)
        assert config["oauth_cb"] is msk_token
        assert {config.get("sasl.mechanism"), config.get("sasl.mechanisms")} == {
            "OAUTHBEARER",
            None,
        }


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_read_from_its_file_for_each_client(tmp_path: Path, name: str) -> None:
    file = tmp_path / "secret"
    settings = Settings(kafka={f"{name}.location": str(file)})
    for secret in ("first", " with = and spaces "):
        file.write_text(f"{secret}\n", "utf-8")
        for config_of in (common_config, client_config):
            config = config_of(settings)
            assert config[name] == secret
            assert f"{name}.location" not in config


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_secret_that_cannot_be_read_is_an_error_without_its_content(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"sasl.password.location") as refused:
        client_config(Settings(kafka={"sasl.password.location": str(file)}))
    assert str(file) in str(refused.value)


@pytest.mark.parametrize("words", ["", "regoin=eu-west-1", "region= role=arn:a"])
def test_without_a_region_no_client_is_made(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(SettingsError, match="region"):
        with_login({"sasl.mechanism": MSK, "sasl.oauthbearer.config": words})
