"""Conformance table: ingress records, and how they must be read. The proxy's reader and the audit's
reader are compared with the table. A comparison of the two readers would not show an error that
both of them have. The format is in tests/conformance/README.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.protocol.body import Headers
from proxy.protocol.headers import HOP_MAC, UNREADABLE
from proxy.protocol.policy import Policy
from proxy.protocol.proofs import HopAuthenticator, HopKey
from proxy.protocol.times import parse_delay_ms
from tests.support.proxy_reading import NOTHING

FOLDER: Final = Path(__file__).parents[1] / "conformance"
SETTINGS: Final = FOLDER / "settings.yaml"
FIRST_OFFSET: Final = 7
TOPIC_ID: Final = "ingress-id"
SECRET: Final = "secret"
LONGEST_SHOWN: Final = 40
LINE: Final = "line of the row"
NOW_MS: Final = "1800000000000"
RECORD: Final = {"key": "k", "value": "v", "timestamp": NOW_MS, "settings": "usual"}
INPUTS: Final = {*RECORD, "headers", "asks", "signed", "behind", "name", "fails"}
ANSWERS: Final = {
    "kind": "kind",
    "refused": "code",
    "id": "ident",
    "target": "target",
    "target_partition": "target_partition",
    "target_key": "target_key",
    "due": "due_ms",
    "not_before": "wanted_ms",
    "fires": "fires_ms",
    "goes_on_from": "hop_from",
    "expires": "expires_ms",
    "recalls": "recalled",
    "proves": "needs_proof",
    "knows_key": "known_key",
    "knows_id": "known_ident",
    "began_at": "first_offset",
    "purges_from": "purge_from_ms",
    "purges_to": "purge_to_ms",
    "place_fires": "moved_fires_ms",
    "place_due": "moved_due_ms",
}
"""Columns of PARSED by the names in the table."""
HAS_A_DUE: Final = {"record", "prepare"}
TIMES: Final = ("due", "not_before", "fires", "expires")
NUMBERS: Final = (
    *("target_partition", "goes_on_from", "recalls", "began_at"),
    *("purges_from", "purges_to", "place_fires", "place_due"),
)
BYTES: Final = ("id", "target_key", "knows_key", "knows_id")

Told = Mapping[str, Any]
WireHeader = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Row:
    """Record with its settings, and the expected columns of PARSED. Each settings name has a
    partition, and each row an offset. `fails` maps readers to the reason of a known difference."""

    where: str
    settings: str
    headers: tuple[WireHeader, ...]
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    partition: int
    offset: int
    expected: dict[str, Any]
    fails: Mapping[str, str]

    @property
    def headers_in_python(self) -> Headers:
        """Return the headers as librdkafka shows them to the proxy. A name ends at a NUL byte. If a
        name is not UTF-8, no header is readable (proxy/kafka/unreadable.py)."""
        try:
            return [(name.split(b"\0")[0].decode(), value) for name, value in self.headers]
        except UnicodeDecodeError:
            return [(UNREADABLE, None)]

    @property
    def headers_in_java(self) -> Headers:
        """Return the headers as Kafka's Java client shows them to the audit."""
        return [(name.decode("utf-8", "replace"), value) for name, value in self.headers]

    @property
    def policy(self) -> Policy:
        return policies_of_table()[self.settings]

    def difference(self, read: Mapping[str, Any]) -> str:
        wrong = {n: (want, read[n]) for n, want in self.expected.items() if read[n] != want}
        found = "; ".join(f"{n} must be {want!r}, read {got!r}" for n, (want, got) in wrong.items())
        return f"{self.where} ({self.settings}, {self.headers}): {found}" if found else ""


class LinedMapping(dict[Any, Any]):
    line: int


class TextLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML loader with text scalars. Digits and dates stay text, and null is null."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> LinedMapping:
    found = LinedMapping(loader.construct_mapping(node, deep=True))
    found.line = node.start_mark.line + 1
    return found


def _hex(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> bytes:
    return bytes.fromhex(loader.construct_scalar(node))


def _times(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    number, text = loader.construct_scalar(node).split(" ", 1)
    return int(number) * str(text)


def _join(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> str:
    return "".join(loader.construct_sequence(node, deep=True))


TextLoader.yaml_implicit_resolvers = {}
TextLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(null|)$"), ["n", ""])
TextLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
TextLoader.add_constructor("!hex", _hex)
TextLoader.add_constructor("!times", _times)
TextLoader.add_constructor("!join", _join)


def signer(topic_id: str = TOPIC_ID, secret: str = SECRET) -> HopAuthenticator:
    return HopAuthenticator(HopKey(secret.encode().ljust(32)), topic_id)


@cache
def policies_of_table() -> Mapping[str, Policy]:
    return {name: _policy(**(told or {})) for name, told in _yaml(SETTINGS).items()}


def partition_of(settings: str) -> int:
    return list(policies_of_table()).index(settings)


@cache
def rows() -> tuple[Row, ...]:
    told = [(path, row) for path in table_files() for row in _told_in(path)]
    return tuple(_row(path, offset, row) for offset, (path, row) in enumerate(told, FIRST_OFFSET))


def table_files() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.yaml") if path != SETTINGS)


def _told_in(path: Path) -> Iterator[dict[str, Any]]:
    for section in _yaml(path):
        for row in section["rows"]:
            given, gives = section.get("given", {}), section.get("gives", {})
            answers = gives if _is_answered_like(gives, row) else {}
            yield {**RECORD, **given, **answers, **row, LINE: row.line}


def _is_answered_like(gives: Told, row: Told) -> bool:
    """Return whether the section's answers apply to a row. A refused row has its own answers, and
    so has a row of another kind."""
    kind = gives.get("kind", "record")
    return "refused" not in row and row.get("kind", kind) == kind


def _row(path: Path, offset: int, told: Told) -> Row:
    strange = told.keys() - INPUTS - {LINE} - ANSWERS.keys()
    assert not strange, f"{path.name}: {strange} in {told}"
    partition = partition_of(told["settings"])
    key, value = _bytes(told["key"]), _bytes(told["value"])
    headers = _all_headers(told)
    if signed := told.get("signed"):
        readable = [(name.decode(), content) for name, content in headers]
        headers.append((HOP_MAC.encode(), _mac(signed, partition, key, value, readable)))
    return Row(
        where=f"{path.name}:{told[LINE]} {told.get('name') or _shown(_headers(told['asks']))}",
        settings=told["settings"],
        headers=(*headers, *_headers(told.get("behind", []))),
        key=key,
        value=value,
        timestamp_ms=int(told["timestamp"]),
        partition=partition,
        offset=offset,
        expected=_expected(told),
        fails=told.get("fails", {}),
    )


def _all_headers(told: Told) -> list[WireHeader]:
    """Return all headers. A row's header replaces its section's header of the same name."""
    asks = _headers(told["asks"])
    named = {name for name, _ in asks}
    return [one for one in _headers(told.get("headers", [])) if one[0] not in named] + asks


def _mac(
    told: str | Told, partition: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes | None:
    """Return the proxy's MAC (`yes`), or a MAC with one wrong input."""
    other = {} if isinstance(told, str) else told
    signing = signer(other.get("topic", TOPIC_ID), other.get("secret", SECRET))
    signed = signing.signed(
        partition + int(other.get("partition", 0)),
        _bytes(other["key"]) if "key" in other else key,
        _bytes(other["value"]) if "value" in other else value,
        headers,
    )
    return signed[-1][1]


def _expected(told: Told) -> dict[str, Any]:
    """Return the columns of PARSED. The table omits empty columns."""
    kind = "refused" if "refused" in told else told.get("kind", "record")
    found: dict[str, Any] = {n: told[n] for n in ANSWERS if n in told} | {"kind": kind}
    if kind in HAS_A_DUE:
        assert {"due", "target", "target_key"} <= found.keys(), f"not told whole: {told}"
        found.setdefault("not_before", found["due"])
        found.setdefault("fires", found["not_before"])
    found |= {n: _time_ms(found[n], int(told["timestamp"])) for n in TIMES if n in found}
    found |= {n: int(found[n]) for n in NUMBERS if n in found}
    found |= {n: _bytes(found[n]) for n in BYTES if n in found}
    if "proves" in found:
        found["proves"] = True
    return {**NOTHING, **{ANSWERS[n]: value for n, value in found.items()}}


def _time_ms(told: str, timestamp_ms: int) -> int:
    """Return epoch milliseconds. A plus sign means relative to the record's timestamp."""
    return timestamp_ms + int(told) if told.startswith("+") else int(told)


def _headers(told: list[Mapping[str | bytes, str | bytes | None]]) -> list[WireHeader]:
    return [(_bytes(name) or b"", _bytes(value)) for one in told for name, value in one.items()]


def _bytes(told: str | bytes | None) -> bytes | None:
    return told.encode() if isinstance(told, str) else told


def _shown(headers: list[WireHeader]) -> str:
    return ", ".join(f"{_text(n)}: {_text(v)}" for n, v in headers) or "no header"


def _text(value: bytes | None) -> str:
    text = "null" if value is None else value.decode("ascii", "backslashreplace")
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _policy(retention: str | None = None, hops: str = "signed", **told: Any) -> Policy:
    retention_ms = None if retention is None else parse_delay_ms(retention)
    policy = policy_of(Settings.model_validate(told), retention_ms)
    if hops == "unsigned":
        return replace(policy, recalls_in=None, checks_groups=False)
    return replace(policy, hop_key=signer().key.digest)


def _yaml(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), TextLoader)  # noqa: S506 (it is a SafeLoader)
