"""Policies: the settings by which the proxy reads records, each in force from an offset on.
The settings topic holds a policy's JSON under its digest. Committed metadata names the first offset
of each digest (docs/exactly-once.md#3-ingestion-is-a-pure-function).
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.records.bounded_json import read_json, whole
from spark_jobs.records.hashes import INNER, OUTER, HopKeys, padded, policy_digest
from spark_jobs.records.headers import java_regex
from spark_jobs.runtime.errors import NotOurs
from spark_jobs.runtime.frames import Schema, columns_of, local_rows

LAST_OFFSET: Final = 2**63 - 1
DEFAULTS: Final[dict[str, Any]] = {
    "roll_after_ms": None,
    "retry_first_level": 3,
    "retry_max_attempts": 16,
    "retry_groups": [],
    "retry_prefix": "retry.",
    "dlq_prefix": "dlq.",
    "immunity_ms": 6_000,
    "check_interval_ms": 30_000,
    "max_checks": 15,
    "aliases": [],
    "hop_key": None,
    "recalls_in": None,
    "max_past_ms": None,
    "reserved": [],
    "marks": [],
    "checks_groups": False,
    "serves": None,
    "proves_recalls": False,
}
"""Values of fields that an older policy does not have."""
ALWAYS_THERE: Final = frozenset(
    {"levels_ms", "max_delay_ms", "allow", "deny", "own_topics", "protocol"}
)
NO_KEYS: Final = HopKeys("", {})
PROTOCOL: Final = 2
"""The only version of the protocol that was released."""

RETRY: Final = "struct<delays_ms:array<bigint>,max_attempts:int>"
RANGES: Final[Schema] = {
    "partition": "int",
    "first_offset": "bigint",
    "until_offset": "bigint",
    "policy": "int",
}
"""The number of the policy in force for each range of offsets. `until_offset` is exclusive."""
POLICY: Final[Schema] = {
    "levels_ms": "array<bigint>",
    "max_delay_ms": "bigint",
    "allow": "string",
    "deny": "string",
    "reserved": "string",
    "marks": "string",
    "named": "array<string>",
    "own_topics": "array<string>",
    "roll_after_ms": "bigint",
    "retry": RETRY,
    "retry_groups": f"map<string,{RETRY}>",
    "retry_prefix": "string",
    "dlq_prefix": "string",
    "immunity_ms": "bigint",
    "check_interval_ms": "bigint",
    "max_checks": "bigint",
    "aliases": "array<string>",
    "recalls_in": "string",
    "max_past_ms": "bigint",
    "checks_groups": "boolean",
    "serves": "array<string>",
    "proves_recalls": "boolean",
    "hop_topic_id": "string",
    "hop_inner": "string",
    "hop_outer": "string",
}
"""A policy as the rules read it.
`allow`, `deny`, `reserved`, `marks`: Java regular expressions of topics. Null allows all, denies
none, reserves none. `named`: the entries of `allow`; topics named there are never reserved.
`retry`: the rule of groups outside `retry_groups`. `hop_inner`, `hop_outer`: the key that signs the
proxy's own records; null without signatures. `recalls_in`: the ingress topic; null without recalls.
`checks_groups`: whether consumer groups must be named or allowed. `serves`: the requests beyond
delivery that producers may make; null for all. `proves_recalls`: whether a recall must have the key
or id of its record.
"""


class InForce(NamedTuple):
    """The digest of a policy, which is in force in a partition from this offset on."""

    partition: int
    first_offset: int
    digest: str


class Policies(NamedTuple):
    """Policies by number (one JSON array of POLICY), their RANGES, and their aliases."""

    ranges: DataFrame
    texts: str
    aliases: frozenset[str]

    def column(self, number: str) -> Column:
        """Return POLICY as a struct, looked up in a constant. Records have only the number."""
        kind = f"array<struct<{columns_of(POLICY)}>>"
        return f.get(f.from_json(f.lit(self.texts), kind, {"mode": "FAILFAST"}), f.col(number))


def policies(
    spark: SparkSession,
    texts: Mapping[str, str],
    in_force: Iterable[InForce],
    hop_keys: HopKeys = NO_KEYS,
) -> Policies:
    """Return the policies. `texts`: JSON by digest. Raises NotOurs."""
    ranges = sorted(in_force)
    digests = sorted({this.digest for this in ranges})
    read = [_fields(digest, texts.get(digest), hop_keys) for digest in digests]
    rows = []
    for this, after in pairwise([*ranges, InForce(-1, LAST_OFFSET, "")]):
        until = after.first_offset if after.partition == this.partition else LAST_OFFSET
        values = this.partition, this.first_offset, until, digests.index(this.digest)
        rows.append(dict(zip(RANGES, values, strict=True)))
    columns = [{name: fields[name] for name in POLICY} for fields in read]
    aliases = frozenset(name for fields in read for name in fields["aliases"])
    return Policies(local_rows(spark, rows, RANGES), json.dumps(columns), aliases)


def least_attempts(texts: Mapping[str, str]) -> int:
    """Return the smallest number of publish attempts in these policies. Skip unreadable texts."""
    found = list[int]()
    for text in texts.values():
        with suppress(ValueError, TypeError):
            found.append(whole(_known_fields(text)["retry_max_attempts"]))
    return min(filter(None, found), default=int(DEFAULTS["retry_max_attempts"]))


def _fields(digest: str, text: str | None, hop_keys: HopKeys) -> dict[str, Any]:
    if text is None:
        raise NotOurs(
            f"The settings topic does not hold the policy {digest}, which applied to some records.",
            "Restore that topic's records, or audit later offsets only.",
        )
    try:
        fields = _known_fields(text)
        if policy_digest(text.encode()) != digest:
            raise ValueError("its text has another digest")
        return _columns(fields, hop_keys)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise NotOurs(
            f"The policy {digest} in the settings topic cannot be read: {error}.",
            "Audit with the version of the proxy that wrote it, or a newer one.",
        ) from error


def _known_fields(text: str) -> dict[str, Any]:
    found = read_json(text, dict)
    if missing := ALWAYS_THERE - found.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    if unknown := found.keys() - ALWAYS_THERE - DEFAULTS.keys():
        raise ValueError(f"it has the unknown fields {', '.join(sorted(unknown))}")
    if found["protocol"] != PROTOCOL:
        raise ValueError(f"it is of the protocol {found['protocol']}, not {PROTOCOL}")
    return {**DEFAULTS, **found}


def _columns(policy: dict[str, Any], hop_keys: HopKeys) -> dict[str, Any]:
    """Return the values of POLICY, and further fields. Raises ValueError."""
    levels_ms, first_level = policy["levels_ms"], policy["retry_first_level"]
    digest = policy["hop_key"]
    if digest is not None and digest not in hop_keys.secrets:
        raise ValueError(f"the topic does not hold its key {digest} for hops")
    secret = hop_keys.secrets.get(digest)
    return {
        **policy,
        "allow": None if "*" in policy["allow"] else java_regex(policy["allow"]),
        **{
            name: java_regex(policy[name]) if policy[name] else None
            for name in ("deny", "reserved", "marks")
        },
        "named": policy["allow"],
        "retry": {
            "delays_ms": levels_ms[first_level - 1 :] or levels_ms[-1:],
            "max_attempts": policy["retry_max_attempts"],
        },
        "retry_groups": {
            name: {"delays_ms": delays_ms, "max_attempts": most}
            for name, delays_ms, most in reversed(policy["retry_groups"])
        },
        "hop_topic_id": None if secret is None else hop_keys.topic_id,
        "hop_inner": None if secret is None else padded(secret, INNER),
        "hop_outer": None if secret is None else padded(secret, OUTER),
    }
