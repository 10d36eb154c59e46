"""One set of `--kafka key=value` for two clients: librdkafka, and the Java client inside Spark.

The keys are librdkafka's, as in the proxy's own settings. What concerns the connection is
translated for the Java client, files included, so that no worker of Spark needs them on its disk:

    security.protocol, client.id             the same
    sasl.mechanism, sasl.mechanisms          sasl.mechanism
    sasl.username and sasl.password          sasl.jaas.config (PLAIN and SCRAM)
    ssl.ca.location, ssl.ca.pem              ssl.truststore.certificates
    ssl.certificate.location, .pem           ssl.keystore.certificate.chain
    ssl.key.location, .pem, .password        ssl.keystore.key, ssl.key.password
    ssl.endpoint.identification.algorithm    the same; `none` is empty

A key that begins with `java.` is for the Java client alone (`java.sasl.jaas.config=...`); every
other one is for librdkafka alone.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_jobs.runtime.errors import AuditError

VARIABLE: Final = "KAFKA_DELAY_PROXY_AUDIT_KAFKA"
JAVA_ALONE: Final = "java."
SAME: Final = ("security.protocol", "client.id")
LOGIN: Final = "org.apache.kafka.common.security"
TEXTS: Final = {
    "ssl.ca": "ssl.truststore.certificates",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.key": "ssl.keystore.key",
}
"""librdkafka's names without `.location` or `.pem`, and Java's for the text itself."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the broker, by the keys of both clients."""

    bootstrap: str
    librdkafka: Mapping[str, str]
    java: Mapping[str, str]


def kafka_settings(bootstrap: str, pairs: Iterable[str] = ()) -> KafkaSettings:
    """From the environment and the command line: `pairs` are `key=value`, and win.

    Raises `AuditError`."""
    given = {**_from_environment(), **dict(map(_pair, pairs))}
    alone = {key.removeprefix(JAVA_ALONE): value for key, value in given.items() if _is_java(key)}
    own = {key: value for key, value in given.items() if not _is_java(key)}
    return KafkaSettings(
        bootstrap,
        {**own, "bootstrap.servers": bootstrap},
        {**_in_java(own), **alone, "bootstrap.servers": bootstrap},
    )


def _from_environment() -> dict[str, str]:
    """As `kafka-delay-proxy audit` hands them over, so that no password is among the arguments."""
    try:
        found = json.loads(os.environ.get(VARIABLE) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AuditError(f"The environment's {VARIABLE} is no JSON object.", "Correct or unset it.")
    return {str(key): str(value) for key, value in found.items()}


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator):
        raise AuditError(f"--kafka {text} is not key=value.", "Write e.g. security.protocol=SSL.")
    return key.strip(), value


def _is_java(key: str) -> bool:
    return key.startswith(JAVA_ALONE)


def _in_java(own: Mapping[str, str]) -> dict[str, str]:
    return {
        **{key: own[key] for key in SAME if key in own},
        **_login(own),
        **_certificates(own),
        **_trust(own),
    }


def _login(own: Mapping[str, str]) -> dict[str, str]:
    mechanism = own.get("sasl.mechanism") or own.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    found = {"sasl.mechanism": mechanism}
    if "sasl.username" in own:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        name, secret = (_quoted(own.get(f"sasl.{one}", "")) for one in ("username", "password"))
        found["sasl.jaas.config"] = f"{LOGIN}.{module} required username={name} password={secret};"
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _certificates(own: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key, java in TEXTS.items():
        if f"{key}.location" in own:
            found[java] = _text_of(Path(own[f"{key}.location"]))
        elif f"{key}.pem" in own:
            found[java] = own[f"{key}.pem"]
    for store in ("truststore", "keystore"):
        if any(name.startswith(f"ssl.{store}") for name in found):
            found[f"ssl.{store}.type"] = "PEM"
    if "ssl.key.password" in own:
        found["ssl.key.password"] = own["ssl.key.password"]
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(
            f"The file {path} cannot be read as PEM: {error}.", "Correct --kafka ssl.*.location."
        ) from None


def _trust(own: Mapping[str, str]) -> dict[str, str]:
    if own.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise AuditError(
            "The Java client inside Spark cannot leave the broker's certificate unverified.",
            "Give the certificate in --kafka ssl.ca.location=FILE.",
        )
    algorithm = own.get("ssl.endpoint.identification.algorithm")
    if algorithm is None:
        return {}
    return {"ssl.endpoint.identification.algorithm": "" if algorithm == "none" else algorithm}
