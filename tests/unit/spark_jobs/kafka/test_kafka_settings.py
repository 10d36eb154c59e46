"""One set of Kafka settings reaches both clients in their own terms."""

from pathlib import Path

import pytest

from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.runtime.errors import AuditError


def test_plain_broker_needs_its_address_alone() -> None:
    settings = kafka_settings("here:9092")
    assert settings.librdkafka == settings.java == {"bootstrap.servers": "here:9092"}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
def test_login_is_told_to_java_in_its_words(mechanism: str, module: str) -> None:
    pairs = [
        "security.protocol=SASL_SSL",
        f"sasl.mechanisms={mechanism}",
        "sasl.username=me",
        'sasl.password=with "quotes" and = and \\',
    ]
    settings = kafka_settings("here:9092", pairs)

    assert settings.librdkafka["sasl.password"] == 'with "quotes" and = and \\'
    assert settings.java == {
        "bootstrap.servers": "here:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
        'username="me" password="with \\"quotes\\" and = and \\\\";',
    }


def test_certificates_reach_java_as_texts(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authority")
    (tmp_path / "key.pem").write_text("secret")
    pairs = [
        f"ssl.ca.location={tmp_path / 'ca.pem'}",
        "ssl.certificate.pem=own",
        f"ssl.key.location={tmp_path / 'key.pem'}",
        "ssl.key.password=word",
        "ssl.endpoint.identification.algorithm=none",
    ]
    assert kafka_settings("here:9092", pairs).java == {
        "bootstrap.servers": "here:9092",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "authority",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "own",
        "ssl.keystore.key": "secret",
        "ssl.key.password": "word",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_what_only_one_client_knows_reaches_it_alone() -> None:
    settings = kafka_settings("here:9092", ["java.a=1", "socket.timeout.ms=5"])
    assert settings.java == {"bootstrap.servers": "here:9092", "a": "1"}
    assert settings.librdkafka == {"bootstrap.servers": "here:9092", "socket.timeout.ms": "5"}


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("security.protocol", "key=value"),
        ("ssl.ca.location=/nowhere/ca.pem", "cannot be read"),
        ("enable.ssl.certificate.verification=false", "always verifies"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(pair: str, says: str) -> None:
    with pytest.raises(AuditError, match=says):
        kafka_settings("here:9092", [pair])
