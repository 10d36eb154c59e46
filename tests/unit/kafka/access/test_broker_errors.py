"""Errors of the client library become sentences that name the wrong setting."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.config.settings import Settings
from proxy.errors import BrokerLate, BrokerRefused, BrokerUnreachable, SettingsError
from proxy.kafka.access import Connection, RangeUnreadable, explain, explained
from tests.support.installation.certificates import Authority, Identity

LIBRDKAFKA: Any = KafkaError
SSL, DOWN = LIBRDKAFKA._SSL, LIBRDKAFKA._ALL_BROKERS_DOWN
TIMED_OUT, MSG_TIMED_OUT = LIBRDKAFKA._TIMED_OUT, LIBRDKAFKA._MSG_TIMED_OUT
REFUSED = "/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
UNRESOLVED = "/bootstrap: Failed to resolve"
TRANSPORT, AUTHENTICATION = LIBRDKAFKA._TRANSPORT, LIBRDKAFKA._AUTHENTICATION
UNTRUSTED = (
    "SSL handshake failed: certificate verify failed: broker certificate could not be verified"
)
ALERT = "Receive failed: error:0A000412:SSL routines::ssl/tls alert %s: SSL alert number 42"


@pytest.mark.parametrize(
    ("code", "said", "setting"),
    [
        (SSL, UNTRUSTED, "`ssl.ca.location`"),
        (TRANSPORT, ALERT % "bad certificate", "ssl.certificate.location`"),
        (TRANSPORT, ALERT % "certificate expired", "ssl.certificate.location`"),
        (TRANSPORT, ALERT % "unknown ca", "ssl.certificate.location`"),
        (SSL, ALERT % "protocol version", "`ssl.*`"),
        (AUTHENTICATION, "Authentication failed due to invalid credentials", "`sasl.password`"),
        (AUTHENTICATION, "Unsupported SASL mechanism", "`sasl.mechanism`"),
        (TRANSPORT, "connecting to a PLAINTEXT broker listener?", "`security.protocol`"),
    ],
)
def test_what_a_broker_refuses_names_the_setting(code: int, said: str, setting: str) -> None:
    sentence = explain(KafkaError(code, said), Settings())
    assert isinstance(sentence, BrokerRefused)
    assert setting in sentence.remedy


def test_a_broker_that_is_away_is_not_taken_for_one_that_refuses() -> None:
    sentence = explain(KafkaError(TRANSPORT, "Connection refused"), Settings())
    assert isinstance(sentence, BrokerUnreachable)


@pytest.mark.parametrize("code", [TIMED_OUT, MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT])
def test_a_broker_that_was_slow_is_not_taken_for_one_that_is_away(code: int) -> None:
    sentence = explain(KafkaError(code, "Timed out"), Settings())
    assert isinstance(sentence, BrokerLate)
    assert "does not answer in time" in str(sentence)


def test_the_cause_is_told_before_its_consequences() -> None:
    admin = Connection(Settings(), {"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    admin._heard.extend([KafkaError(DOWN, "1/1 brokers are down"), KafkaError(SSL, UNTRUSTED)])
    timed_out = KafkaException(KafkaError(TRANSPORT, "Failed to get metadata"))
    assert "has a certificate that is not valid" in str(admin.sentence(timed_out))


@pytest.mark.parametrize(
    ("heard", "is_late"),
    [
        ([(TRANSPORT, "a:1" + REFUSED), (DOWN, "2/2 brokers are down")], False),
        ([(TRANSPORT, "a:1" + UNRESOLVED), (DOWN, "2/2 brokers are down")], False),
        ([(TRANSPORT, "a:1" + REFUSED), (TRANSPORT, "b:1" + UNRESOLVED)], False),
        ([(TIMED_OUT, "a:1/1: ApiVersionRequest failed"), (DOWN, "2/2 brokers are down")], True),
        ([(TRANSPORT, "a:1" + REFUSED), (TRANSPORT, "a:1" + REFUSED)], True),
        ([(TRANSPORT, "a:1" + REFUSED), (TIMED_OUT, "b:1/1: ApiVersionRequest failed")], True),
        ([(DOWN, "1/1 brokers are down")], True),
        ([], True),
    ],
)
def test_brokers_that_are_there_are_late_and_not_away(
    heard: list[tuple[int, str]], is_late: bool
) -> None:
    two = Settings(kafka={"bootstrap.servers": "a:1,b:1"})
    admin = Connection(two, {"bootstrap.servers": "", "log_level": 0})
    admin._heard.extend(KafkaError(code, said) for code, said in heard)
    sentence = admin.sentence(KafkaException(KafkaError(TIMED_OUT, "waiting for controller")))
    assert isinstance(sentence, BrokerLate) is is_late
    assert isinstance(sentence, BrokerUnreachable)


def test_a_refusal_that_needs_no_cause_is_told_as_it_is() -> None:
    admin = Connection(Settings(), {"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    admin._heard.append(KafkaError(SSL, UNTRUSTED))
    refused = KafkaException(KafkaError(KafkaError.POLICY_VIOLATION, "no"))
    assert "POLICY_VIOLATION" in str(admin.sentence(refused))


def test_settings_that_the_client_library_does_not_take_are_no_defect() -> None:
    with pytest.raises(SettingsError, match="under `kafka`"), explained(Settings()):
        raise KafkaException(KafkaError(LIBRDKAFKA._INVALID_ARG, "no such property"))


def test_a_refused_read_names_the_topic_and_the_command_that_grants_it() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Fetch from broker 1 failed")
    with pytest.raises(BrokerRefused) as raised, explained(Settings()):
        raise RangeUnreadable(refused, "letters")
    assert "(letters)" in raised.value.found
    assert raised.value.remedy.endswith("--operation Read --topic letters")


def test_a_password_that_is_not_set_is_named_with_its_variable() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "p"}
    with pytest.raises(SettingsError, match="is not set") as raised:
        Connection(Settings(kafka={"bootstrap.servers": "127.0.0.1:9", **login}))
    assert "DELAY_PROXY_KAFKA__SASL_PASSWORD" in raised.value.remedy


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_the_client_library_cannot_use_is_named(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content, "ascii")
    asked = {"security.protocol": "SSL", "ssl.ca.location": str(path)}
    settings = Settings(kafka={"bootstrap.servers": "127.0.0.1:9", **asked})
    why = "does not exist" if content is None else "was rejected"
    with pytest.raises(SettingsError, match=f"{path} of `ssl.ca.location` under `kafka` {why}"):
        Connection(settings)


@contextmanager
def a_listener(folder: Path, *, with_tls: bool, identity: Identity | None = None) -> Iterator[str]:
    """Yield the address of a server that closes on unknown input, as Kafka does."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if with_tls:
        identity = identity or Authority().issue("broker")
        (folder / "both.pem").write_text(identity.certificate + identity.key, "ascii")
        context.load_cert_chain(folder / "both.pem")

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    if with_tls:
                        context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("with_tls", "protocol", "is_said"),
    [
        (True, "PLAINTEXT", True),
        (True, "sasl_plaintext", True),
        (True, "SASL_SSL", False),
        (False, "PLAINTEXT", False),
    ],
)
def test_tls_that_was_forgotten_is_said(
    tmp_path: Path, with_tls: bool, protocol: str, is_said: bool
) -> None:
    with a_listener(tmp_path, with_tls=with_tls) as address:
        kafka = {"bootstrap.servers": address, "security.protocol": protocol}
        admin = Connection(Settings(kafka=kafka), {"log_level": 0})
        timed_out = KafkaException(KafkaError(TIMED_OUT, "Timed out"))
        sentence = admin.sentence(timed_out)
    assert (f"at {address} requires TLS" in sentence.found) is is_said
    assert ("`security.protocol`" in sentence.remedy) is is_said


@pytest.mark.parametrize(
    ("hosts", "minutes", "is_trusted", "reason", "remedy"),
    [
        (["127.0.0.1"], -5, True, "not valid: certificate has expired (", "Renew the certificate"),
        (["127.0.0.1"], 5, False, "issuer certificate (", "`ssl.ca.location`"),
        (["elsewhere"], 5, True, "not valid for '127.0.0.1' (", "for the host name in"),
        (["127.0.0.1"], 5, True, "not valid: SSL handshake failed", "`ssl.ca.location`"),
    ],
)
def test_the_reason_against_a_certificate_is_told_first(
    tmp_path: Path, hosts: list[str], minutes: int, is_trusted: bool, reason: str, remedy: str
) -> None:
    authority = Authority()
    identity = authority.issue("broker", hosts, timedelta(minutes=minutes))
    trusted = tmp_path / "ca.pem"
    trusted.write_text((authority if is_trusted else Authority("other")).certificate, "ascii")
    with a_listener(tmp_path, with_tls=True, identity=identity) as address:
        kafka = {"bootstrap.servers": address, "ssl.ca.location": str(trusted)}
        sentence = explain(KafkaError(SSL, UNTRUSTED), Settings(kafka=kafka))
    assert reason in sentence.found
    assert remedy in sentence.remedy
