"""Types of setting values, and their parsers."""

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from proxy.protocol.aliases import KNOWN_ALIASES
from proxy.protocol.policy import REQUEST_KINDS, is_legal_topic
from proxy.protocol.times import parse_delay_ms, parse_levels

LARGEST_BYTES = 1 << 60
LONGEST_DELAY_MS = 36_525 * 86_400_000
OWNED_BY_THE_PROXY: dict[str, str] = {
    "group.id": "use the setting `group_id`",
    "group.instance.id": "the proxy derives it from `instance_id`",
    "group.protocol": "the proxy needs the cooperative rebalancing of the classic protocol",
    "transactional.id": "the proxy derives it from `group_id` and `instance_id`",
    "enable.auto.commit": "offsets are committed inside transactions",
    "enable.auto.offset.store": "offsets are committed inside transactions",
    "auto.offset.reset": "the proxy decides at which offset it starts",
    "isolation.level": "the proxy reads committed records only",
    "enable.idempotence": "exactly-once delivery needs it",
    "acks": "exactly-once delivery needs `acks: all`",
    "max.in.flight": "exactly once limits it",
    "max.in.flight.requests.per.connection": "exactly once limits it",
    "partition.assignment.strategy": "the proxy needs `cooperative-sticky`",
    "metadata.broker.list": "it is another name of `bootstrap.servers`: use that name",
    "partitioner": "the proxy chooses partitions as Java clients do. To choose one, use the header "
    "`timer-partition`",
    "enable.partition.eof": "the proxy finds the end of a partition itself",
    "delivery.report.only.error": "the proxy counts every delivery report",
}
PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
ADDRESS: Final = re.compile(
    r"(?:\[[0-9a-fA-F:.%]+\]|[\w.-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*"
)
"""A host name, IPv4 or bracketed IPv6 address with an optional port, or a bare IPv6 address."""
MOST_PORT: Final = 65_535


def _duration_ms(value: object) -> object:
    return parse_delay_ms(value) if isinstance(value, str) else value


def _size_bytes(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


def _auto_is_none(value: object) -> object:
    return None if value == "auto" else value


def _split_commas(value: object) -> object:
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.startswith("[") else re.findall(r"[^,\s]+", value)


def _levels_ms(value: object) -> object:
    return parse_levels(value) if isinstance(value, str) else value


def check_topic(name: str) -> str:
    """Return the name if it is legal for a topic. Raises ValueError."""
    if not is_legal_topic(name):
        raise ValueError(
            f"{name!r} is not a topic name: write 1 to 249 of the characters A-Z a-z 0-9 . _ -"
        )
    return name


def _only(known: Sequence[str], kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"{name!r} is not a {kind}: {hint}")
    return tuple(sorted(set(names)))


def _not_owned(name: str) -> str:
    if why := OWNED_BY_THE_PROXY.get(name):
        raise ValueError(f"the proxy sets this itself: {why}")
    return name


def _librdkafka_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(
        "must be text or a number: write nested names as one dotted name (`ssl.ca.location`)"
    )


def refuse_no_addresses(bootstrap: str) -> None:
    """Raise ValueError unless each address is `host:port`, perhaps after a protocol such as
    `SSL://`."""
    addresses = [address for address in map(str.strip, bootstrap.split(",")) if address]
    for address in addresses or [bootstrap]:
        scheme, mark, rest = address.rpartition("://")
        host = rest.lstrip("/").partition("/")[0].rpartition("@")[2]
        shown = address.rpartition("@")[2]  # without a login, which errors must not show
        if (mark and scheme.upper() not in PROTOCOLS) or "/" in rest:
            raise ValueError(
                f"`bootstrap.servers` names {shown!r}: write host:port, without a scheme and "
                f"without a path, as in {host or 'localhost:9092'}"
            )
        found = ADDRESS.fullmatch(rest)
        if found is None or not 0 < int(found["port"] or 1) <= MOST_PORT:
            raise ValueError(
                f"`bootstrap.servers` names {shown!r}: write host:port, as in localhost:9092"
            )


DurationMs = Annotated[
    int,
    BeforeValidator(_duration_ms, json_schema_input_type=str | int),
    Field(gt=0, le=LONGEST_DELAY_MS),
]
SizeBytes = Annotated[
    int,
    BeforeValidator(_size_bytes, json_schema_input_type=str | int),
    Field(ge=1, le=LARGEST_BYTES),
]
AutoDurationMs = Annotated[
    DurationMs | None,
    BeforeValidator(_auto_is_none, json_schema_input_type=str | int | None),
]
AutoReserveBytes = Annotated[
    Annotated[int, BeforeValidator(_size_bytes), Field(ge=0, le=LARGEST_BYTES)] | None,
    BeforeValidator(_auto_is_none, json_schema_input_type=str | int | None),
]
AutoWorkers = Annotated[
    Annotated[int, Field(ge=1, le=1024)] | None,
    BeforeValidator(_auto_is_none, json_schema_input_type=int | Literal["auto"]),
]
KafkaName = Annotated[str, AfterValidator(_not_owned)]
KafkaText = Annotated[
    str, BeforeValidator(_librdkafka_text, json_schema_input_type=str | float | bool)
]
LevelsMs = Annotated[
    tuple[int, ...],
    NoDecode,
    BeforeValidator(_levels_ms, json_schema_input_type=str | tuple[int, ...]),
]
Patterns = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split_commas, json_schema_input_type=str | tuple[str, ...]),
]
Aliases = Annotated[
    Patterns,
    AfterValidator(partial(_only, KNOWN_ALIASES, "known scheduler")),
]
Requests = Annotated[Patterns, AfterValidator(partial(_only, REQUEST_KINDS, "kind of request"))]


BYTES_PER: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_SIZE = re.compile(r"([0-9]{1,15})(|KiB|MiB|GiB|TiB)", re.ASCII)


def parse_size_bytes(text: str) -> int:
    """Parse a size such as `1048576`, `64KiB` or `2GiB`. Raises ValueError with a sentence."""
    if size := _SIZE.fullmatch(text):
        return int(size[1]) * BYTES_PER[size[2]]
    raise ValueError(
        f"{text!r} is not a size: write bytes (1048576), or a whole number with a unit and "
        "without a space (64KiB 256MiB 2GiB 1TiB)"
    )


def shown_size(size_bytes: int) -> str:
    """Format a size for people, as in `1.5 GiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= BYTES_PER[unit]:
            return f"{size_bytes / BYTES_PER[unit]:.3g} {unit}"
    return f"{size_bytes} bytes"
