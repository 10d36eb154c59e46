"""Real connections with TLS, mutual TLS and logins. Refusals tell the operator the remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.embedded.server import pick_free
from proxy.logins import MSK
from tests.support.installation.admin_client import call
from tests.support.installation.certificates import Authority
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import REPOSITORY, ProxyProcess
from tests.support.installation.secured_broker import HOST, MUTUAL, PLAIN, SCRAM, TLS, TOKENS
from tests.support.installation.secured_site import PASSWORD, SecuredSite
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules
from tests.support.records import read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

TOKEN = "a-token-that-must-not-be-shown"
PAGES = ("/metrics", "/healthz", "/readyz", "/api/v1/status", "/api/v1/pending")
WITHIN_S = 600
AUDITED = (0, 3)
"""Exit codes of an audit that passes while the proxy runs. It starts Spark."""


@pytest.mark.parametrize("listener", [TLS, MUTUAL, SCRAM, PLAIN, TOKENS])
def test_records_are_delivered_cancelled_and_tried_again(
    installation: Installation, site: SecuredSite, listener: str
) -> None:
    told = Story(installation, Rules(), kafka=site.kafka(listener))
    orders = installation.target()
    told.proxy.start_ready()
    told.tell("delivered", topic=orders, delay="300ms")
    told.tell("cancelled", topic=orders, id="c", delay="1h")
    told.tell("its cancel", cancel="c")
    told.tell("tried again", topic=f"{installation.name}.made-later", delay="10ms")
    told.send()
    wait_for(lambda: _is_requeued(installation), WITHIN_S, "the record to be tried again")
    installation.named_target(f"{installation.name}.made-later")
    told.end()
    assert told.said("cancelled") == ["cancelled"]
    assert told.said("tried again")[0] == "requeued"
    assert len(told.delivered("delivered")) == len(told.delivered("tried again")) == 1


def _is_requeued(installation: Installation) -> bool:
    outcomes = read_to_end(installation.bootstrap, installation.outcomes)
    return any(b'"requeued"' in (outcome.value or b"") for outcome in outcomes)


Change = Callable[[SecuredSite, Path], tuple[str, dict[str, str]]]


def _wrong_password(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return SCRAM, {"sasl_password": PASSWORD[::-1]}


def _wrong_plain_password(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return PLAIN, {"sasl_password": PASSWORD[::-1]}


def _wrong_secret(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return TOKENS, {"sasl_oauthbearer_client_secret": PASSWORD[::-1]}


def _no_token_endpoint(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    nowhere = f"http://{HOST}:{pick_free(HOST)}/token"
    return TOKENS, {"sasl_oauthbearer_token_endpoint_url": nowhere}


def _token_of_aws(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    """The real signer makes the token. Only a broker of MSK accepts it."""
    region = {"sasl_oauthbearer_config": "region=eu-central-1"}
    return TOKENS, {"sasl_mechanism": MSK, "sasl_oauthbearer_method": "", **region}


def _no_identity_of_aws(site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    listener, changed = _token_of_aws(site, _folder)
    return listener, {**changed, "sasl_oauthbearer_config": "region=x profile=unknown"}


def _wrong_mechanism(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return SCRAM, {"sasl_mechanism": "PLAIN"}


def _untrusted(_site: SecuredSite, folder: Path) -> tuple[str, dict[str, str]]:
    (folder / "other.pem").write_text(Authority("others").certificate, "ascii")
    return TLS, {"ssl_ca_location": str(folder / "other.pem")}


def _wrong_host(site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    port = site.broker.address(TLS).rpartition(":")[2]
    return TLS, {"bootstrap_servers": f"localhost:{port}"}


def _strangers_certificate(_site: SecuredSite, folder: Path) -> tuple[str, dict[str, str]]:
    Authority("others").issue("stranger").write(folder)
    return MUTUAL, _own_certificate(folder)


def _expired_certificate(site: SecuredSite, folder: Path) -> tuple[str, dict[str, str]]:
    site.authority.issue("late", valid_for=-timedelta(minutes=5)).write(folder)
    return MUTUAL, _own_certificate(folder)


def _no_certificate(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return MUTUAL, {"ssl_certificate_location": "", "ssl_key_location": ""}


def _missing_file(_site: SecuredSite, folder: Path) -> tuple[str, dict[str, str]]:
    return TLS, {"ssl_ca_location": str(folder / "nobody-wrote-this.pem")}


def _no_tls(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return SCRAM, {"security_protocol": "SASL_PLAINTEXT"}


def _nothing_at_all(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    return TLS, {"security_protocol": "PLAINTEXT"}


def _no_login(_site: SecuredSite, _folder: Path) -> tuple[str, dict[str, str]]:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "u", "sasl_password": PASSWORD}
    return TLS, {"security_protocol": "SASL_SSL", **login}


def _own_certificate(folder: Path) -> dict[str, str]:
    return {
        "ssl_certificate_location": str(folder / "certificate.pem"),
        "ssl_key_location": str(folder / "key.pem"),
    }


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (_wrong_password, ["`sasl.username`", "`sasl.password`"]),
        (_wrong_plain_password, ["`sasl.username`", "`sasl.password`"]),
        (_wrong_secret, ["`sasl.oauthbearer.*`"]),
        (_no_token_endpoint, ["`sasl.oauthbearer.*`"]),
        (_token_of_aws, ["rejected", "`sasl.*`"]),
        (_no_identity_of_aws, ["AWS"]),
        (_wrong_mechanism, ["`sasl.mechanism`"]),
        (_untrusted, ["`ssl.ca.location`"]),
        (_wrong_host, ["`bootstrap.servers`", "for the host name in"]),
        (_strangers_certificate, ["`ssl.certificate.location`", "`ssl.key.location`"]),
        (_expired_certificate, ["`ssl.certificate.location`", "expired"]),
        (_no_certificate, ["`ssl.certificate.location`"]),
        (_missing_file, ["ssl.ca.location"]),
        (_no_tls, ["requires TLS", "`security.protocol`", "SASL_SSL"]),
        (_nothing_at_all, ["requires TLS", "`security.protocol`"]),
        (_no_login, ["`bootstrap.servers`", "`security.protocol`"]),
    ],
)
def test_what_the_broker_refuses_is_a_sentence_that_names_the_setting(
    installation: Installation,
    site: SecuredSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    settings: list[str],
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    listener, changed = change(site, tmp_path)
    kafka = {name: text for name, text in site.kafka(listener, **changed).items() if text}
    proxy = installation.proxy(kafka=kafka)
    proxy.start()
    code, checked = _check(proxy)
    assert (proxy.wait(), code) == (1, 1)
    (said,) = proxy.log.splitlines()[-1:]
    report, _log_at = json.JSONDecoder().raw_decode(checked)
    stops = [f for f in report["findings"] if f["verdict"] == "stop"]
    for setting in settings:
        assert setting in said
        assert setting in f"{stops[0]['found']} {stops[0]['remedy']}"
    assert said.startswith("Error: ")
    assert PASSWORD not in proxy.log + checked
    assert PASSWORD[::-1] not in proxy.log + checked


def test_no_secret_is_in_any_output(installation: Installation, site: SecuredSite) -> None:
    """Search all output at the most detailed log level, librdkafka's log included."""
    proxy = installation.proxy(
        kafka=site.kafka(SCRAM, debug="security,broker,protocol,conf"),
        admin={"port": 0, "token": TOKEN},
        log={"format": "json", "level": "debug"},
    )
    proxy.start_ready()
    story = Story(installation, Rules(), kafka=site.kafka(SCRAM))
    story.tell("delivered", topic=installation.target())
    story.send()
    installation.await_ends(1)
    said = [body for _status, body in map(proxy.get, PAGES)]
    said += [json.dumps(call(proxy, "GET", "/status")), _check(proxy)[1]]
    results = proxy.folder / "results"
    audit = ("audit", "--output", str(results), "--json")
    code, audited = _command(proxy, *audit)
    assert code in AUDITED, audited
    said += [audited, *_texts(results)]
    site.broker.add_user("delay-proxy", "changed-meanwhile")
    said += [_check(proxy)[1], _command(proxy, *audit)[1], *_texts(results)]
    site.broker.add_user("delay-proxy", PASSWORD)
    assert proxy.stop() == 0
    said.append(proxy.log)
    assert "librdkafka" in proxy.log
    for secret in (PASSWORD, TOKEN):
        assert [text for text in said if secret in text] == []


def _texts(folder: Path) -> list[str]:
    return [path.read_text("latin-1") for path in folder.rglob("*") if path.is_file()]


def _check(proxy: ProxyProcess) -> tuple[int, str]:
    return _command(proxy, "check", "--json")


def _command(proxy: ProxyProcess, *arguments: str, **environment: Any) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *arguments, "--config", str(proxy.folder / "proxy.yaml")],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
