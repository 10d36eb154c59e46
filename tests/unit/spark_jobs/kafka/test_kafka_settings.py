"""One set of Kafka settings reaches both clients in their own terms."""

from pathlib import Path

import pytest

from proxy.logins import msk_token
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


def test_a_password_in_a_file_reaches_both_clients(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n", "utf-8")
    pairs = ["sasl.mechanism=PLAIN", "sasl.username=me"]
    settings = kafka_settings(
        "here:9092", [*pairs, f"sasl.password.location={tmp_path / 'password'}"]
    )
    assert settings.librdkafka["sasl.password"] == "secret"
    assert 'password="secret"' in settings.java["sasl.jaas.config"]
    assert not any(".location" in name for name in (*settings.librdkafka, *settings.java))


def test_client_credentials_are_told_to_java_in_its_words() -> None:
    given = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": 'a "secret"',
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        "sasl.oauthbearer.token.endpoint.url": "https://tokens.example/token",
    }
    settings = kafka_settings("here:9092", [f"{name}={text}" for name, text in given.items()])
    tokens = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
    assert settings.librdkafka == {**given, "bootstrap.servers": "here:9092"}
    assert settings.java == {
        "bootstrap.servers": "here:9092",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{tokens}LoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://tokens.example/token",
        "sasl.jaas.config": f'{tokens}LoginModule required clientId="me" '
        'clientSecret="a \\"secret\\"" scope="kafka" extension_logicalCluster="lkc-1" '
        'extension_identityPoolId="pool-1";',
    }


def test_both_clients_log_in_to_msk_with_an_identity_of_aws() -> None:
    pairs = ["sasl.mechanism=AWS_MSK_IAM", "sasl.oauthbearer.config=region=eu-west-1 role=arn:a"]
    settings = kafka_settings("here:9098", pairs)
    assert settings.librdkafka["oauth_cb"] is msk_token
    assert settings.java == {
        "bootstrap.servers": "here:9098",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required "
        'awsRoleArn="arn:a";',
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam."
        "IAMClientCallbackHandler",
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
        ("sasl.mechanism=AWS_MSK_IAM", "region"),
        ("sasl.password.location=/nowhere/password", "cannot be read"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(pair: str, says: str) -> None:
    with pytest.raises(AuditError, match=says):
        kafka_settings("here:9092", [pair])
