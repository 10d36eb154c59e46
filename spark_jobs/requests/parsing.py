"""The request of each ingress record: the audit's own reading of docs/guide.md.
Each step is one select in SQL, so nothing is computed twice. For plain records, conditions skip the
expensive parts. In the SQL, `has(x)`, `raw(x)` and `text(x)` look up `timer-x`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.records import headers as names
from spark_jobs.records.hashes import (
    content_bytes,
    headers_hash,
    is_signed,
    key_number,
    letter_hash,
)
from spark_jobs.records.headers import (
    NO_HEADERS,
    as_the_proxy_reads,
    count_of_own,
    has_any,
    is_blurred,
    is_legal,
    with_headers,
)
from spark_jobs.requests.aliases import LARGEST_PARTITION, translation
from spark_jobs.requests.error_codes import codes_in
from spark_jobs.requests.policies import Policies
from spark_jobs.requests.times import (
    DAY_MS,
    delay_ms,
    digits,
    level_ms,
    plain_digits,
    rfc_3339_ms,
    worded_delay_ms,
)
from spark_jobs.runtime.frames import Schema, quoted

RECORD: Final = "record"
CANCELS: Final = "cancel"
RECALLS: Final = "recall"
PURGES: Final = "purge"
REFUSED: Final = "refused"
DECISIONS: Final = (names.COMMIT, names.ROLLBACK, names.EXPIRE)
TAKE_BACK: Final = (CANCELS, RECALLS, PURGES)
CONTROLS: Final = (*TAKE_BACK, *DECISIONS)
"""Kinds of records that concern other records, and are not delivered."""
KINDS: Final = (RECORD, names.PREPARE, *DECISIONS, *TAKE_BACK, REFUSED)

CHECKS: Final = "struct<topic:string,first_ms:bigint,interval_ms:bigint,most:bigint>"
"""Topic of check-backs, time of the first one, interval, and their largest number."""
PLACE: Final = ("partition", "offset", "timestamp_ms")
LONGEST_ID_BYTES: Final = 256
FIRST_MS: Final = 0
LAST_MS: Final = 2**63 - 1
"""A purge without times covers all dues, from FIRST_MS to LAST_MS."""
LATEST_MS: Final = 10**15 - 1
"""A later timestamp does not come from a clock."""
LONGEST_HOP_MS: Final = 7 * DAY_MS
LOOKUP: Final = {
    "has": "(request_headers.`timer-{}` IS NOT NULL)",
    "raw": "request_headers.`timer-{}`.value",
    "text": "CAST(request_headers.`timer-{}`.value AS string)",
}


def _any(*headers: str) -> str:
    return has_any(name.removeprefix(names.PREFIX) for name in headers)


def _bad_ident(raw: str) -> str:
    return f"({raw} IS NULL OR octet_length({raw}) NOT BETWEEN 1 AND {LONGEST_ID_BYTES})"


def _serves(kind: str) -> str:
    return f"(policy.serves IS NULL OR array_contains(policy.serves, '{kind}'))"


# Controls, half messages, and the proxy's own records.

_HAS_RECALLS: Final = "(policy.recalls_in IS NOT NULL)"
_IS_RECALL: Final = f"(has(recall) AND {_HAS_RECALLS})"
_IS_PURGE: Final = (
    f"({_any(*names.PURGES)} AND {_HAS_RECALLS} AND NOT has(cancel) AND NOT has(recall))"
)
_TAKES_BACK: Final = f"(has(cancel) OR {_IS_RECALL} OR {_IS_PURGE})"
_IS_RETRY: Final = "(is_special AND (has(retry-group) OR has(attempt)))"
_IS_SIGNED: Final = "(has(hop-mac) AND NOT coalesce(is_forged, false))"
_OF_RECALLS: Final = "concat(policy.recalls_in, '/', partition, '/')"
_NAMED: Final = f"substring(text(recall), length({_OF_RECALLS}) + 1, length(text(recall)))"
_RECALLED: Final = rf"""
IF(startswith(text(recall), {_OF_RECALLS}) AND {_NAMED} RLIKE R'\A(0|[1-9][0-9]{{0,17}})\z'
  AND try_cast({_NAMED} AS bigint) < offset, try_cast({_NAMED} AS bigint), NULL)
"""
"""The offset that a recall names. Null unless it lies before the recall in the same partition."""
_IS_SERVED: Final = f"""
(IF(has(transaction), {_serves("transaction")}, NOT has(id) OR {_serves("replace")})
  AND (NOT {_any("retry-group", "attempt")} OR {_serves("retry")}))
"""
_WHOLE_NUMBERS: Final = " AND ".join(
    f"(NOT has({name}) OR {digits(f'text({name})')} IS NOT NULL)"
    for name in (name.removeprefix(names.PREFIX) for name in names.HOP_NUMBERS)
)
_IS_WHOLE_HOP: Final = f"""
((has(first-origin) OR text(transaction) <=> '{names.EXPIRE}') AND {_WHOLE_NUMBERS}
  AND coalesce({digits("text(hop-from)")} < offset, false))
"""


def _purge_ms(name: str, otherwise_ms: int) -> str:
    return f"IF(has({name}), {digits(f'text({name})')}, {otherwise_ms})"


_PURGE_FROM: Final = _purge_ms("purge-from", FIRST_MS)
_PURGE_TO: Final = _purge_ms("purge-to", LAST_MS)
_IS_WHOLE_PURGE: Final = rf"""
(coalesce(text(purge) RLIKE R'\A[a-zA-Z0-9._*?\[\]!-]{{1,249}}\z', false)
  AND {_PURGE_FROM} IS NOT NULL AND {_PURGE_TO} IS NOT NULL)
"""
_UNKNOWN: Final = f"""
get(filter(special_names, name -> name NOT IN {quoted(names.KNOWN)}
  OR (name IN {quoted(names.SINCE_RECALLS)} AND NOT {_HAS_RECALLS})), 0)
"""
_UNKNOWN_CODE: Final = codes_in(f"""
- header-unreadable: {_UNKNOWN} = '{names.UNREADABLE}'
- header-unknown: {_UNKNOWN} IS NOT NULL
""")
_CANCEL_CODE: Final = codes_in(f"""
- header-unsupported: NOT {_serves("cancel")} AND NOT {_IS_SIGNED}
- id-bad: {_bad_ident("raw(cancel)")}
""")
_RECALL_CODE: Final = codes_in(f"""
- header-unsupported: NOT {_serves("recall")} AND NOT {_IS_SIGNED}
- recall-bad: {_RECALLED} IS NULL
""")
_PURGE_CODE: Final = codes_in(f"""
- purge-bad: coalesce(is_forged, false) OR NOT {_IS_WHOLE_PURGE}
""")
_ENTRY_CODE: Final = codes_in(f"""
- id-bad: has(id) AND {_bad_ident("raw(id)")}
- hop-bad: {_any(*names.HOPS)} AND (NOT {_IS_WHOLE_HOP} OR coalesce(is_forged, false))
- header-unsupported: NOT has(hop-from) AND NOT {_IS_SERVED}
""")
_OPENING_CODE: Final = f"""
coalesce(
  IF(has(cancel) OR ({_any("recall", "purge")} AND {_HAS_RECALLS}), NULL, {_UNKNOWN_CODE}),
  CASE WHEN has(cancel) THEN {_CANCEL_CODE} WHEN {_IS_RECALL} THEN {_RECALL_CODE}
    WHEN {_IS_PURGE} THEN {_PURGE_CODE} ELSE {_ENTRY_CODE} END)
"""
_IS_DECISION: Final = f"""
(coalesce(text(transaction) IN {quoted(DECISIONS)}, false)
  AND (text(transaction) <=> '{names.EXPIRE}') = (hop IS NOT NULL))
"""
_DECISION_CODE: Final = codes_in(f"""
- transaction-bad: NOT text(transaction) <=> '{names.PREPARE}' AND NOT {_IS_DECISION}
- id-bad: NOT has(id)
""")
_TRANSACTION_CODE: Final = f"IF(has(transaction) AND NOT {_TAKES_BACK}, {_DECISION_CODE}, NULL)"
"""Only the proxy may write `expire`."""
_MOVE_CODE: Final = codes_in("""
- hop-bad: (has(hop-fires) OR has(hop-due)) AND NOT (has(hop-fires) AND has(hop-due))
""")
"""A move states two times of the record that it replaces: its due, and when it fires."""
_ASKED_KIND: Final = f"""
CASE WHEN NOT is_special THEN '{RECORD}'
  WHEN has(cancel) THEN '{CANCELS}' WHEN {_IS_RECALL} THEN '{RECALLS}'
  WHEN {_IS_PURGE} THEN '{PURGES}'
  WHEN text(transaction) IN {quoted((names.PREPARE, *DECISIONS))} THEN text(transaction)
  ELSE '{RECORD}' END
"""

# Targets, and retries of consumers (docs/guide.md#where, docs/guide.md#retries-of-consumers).


def _matches(topic: str, pattern: str) -> str:
    return f"(policy.{pattern} IS NOT NULL AND rlike({topic}, policy.{pattern}))"


def _is_allowed(topic: str) -> str:
    return f"(policy.allow IS NULL OR rlike({topic}, policy.allow))"


def _target_code(topic: str, is_served: str) -> str:
    """Return SQL of the reason why a topic cannot be a target. `topic` is null if none is named.
    `is_served`: if the proxy names the topic after a consumer group, whether the group is
    allowed; otherwise null. A topic named after a group is reserved only if it matches the policy's
    `marks`.
    """
    is_reserved = f"""
      NOT array_contains(policy.named, {topic}) AND (
        ({is_served} IS NULL AND {_matches(topic, "reserved")}) OR {_matches(topic, "marks")})"""
    is_own = f"""
      array_contains(policy.own_topics, {topic})
        OR startswith({topic}, '{names.INTERNAL_PREFIX}')"""
    return codes_in(f"""
- target-missing: {topic} IS NULL
- target-illegal: NOT {is_legal(topic)}
- target-refused: {is_own} OR {_matches(topic, "deny")}
- target-refused: {is_reserved}
- target-refused: NOT coalesce({is_served}, {_is_allowed(topic)})
""")


_GROUP: Final = "text(retry-group)"
_IS_EXHAUSTED: Final = "(attempt >= rule.max_attempts)"
_RETRY_TOPIC: Final = f"concat(policy.retry_prefix, {_GROUP})"
_GROUP_IS_SERVED: Final = f"""
(NOT policy.checks_groups OR policy.retry_groups[{_GROUP}] IS NOT NULL
  OR {_is_allowed(_RETRY_TOPIC)})
"""
_DELAYS: Final = "rule.delays_ms"
_ADDRESSED: Final = {
    "retry_code": f"""
      IF({_IS_RETRY} AND (coalesce({_GROUP}, '') = '' OR attempt IS NULL),
        'retry-bad', NULL)""",
    "topic": f"""
      CASE WHEN NOT {_IS_RETRY} THEN text(topic)
        WHEN {_IS_EXHAUSTED} THEN concat(policy.dlq_prefix, {_GROUP})
        WHEN raw(topic) IS NOT NULL THEN text(topic) ELSE {_RETRY_TOPIC} END""",
    "is_served": f"""
      IF({_IS_RETRY} AND ({_IS_EXHAUSTED} OR raw(topic) IS NULL), {_GROUP_IS_SERVED}, NULL)""",
    "retry_ms": f"""
      IF({_IS_RETRY} AND NOT {_IS_EXHAUSTED},
        get({_DELAYS}, CAST(least(attempt, size({_DELAYS}) - 1) AS int)), NULL)""",
    "is_given_up": f"coalesce({_IS_RETRY} AND NOT has(hop-from) AND {_IS_EXHAUSTED}, false)",
    "asked_partition": f"""
      IF(has(partition) AND {digits("text(partition)", 10)} <= {LARGEST_PARTITION},
        CAST({digits("text(partition)", 10)} AS int), NULL)""",
    "asked_key": "IF(has(key), raw(key), key)",
}
"""Target, partition and key. Retries beyond the list of delays have the last delay."""

# Times: a point in time beats a delay, and a delay beats a level (docs/guide.md#when).


def _after(delay: str) -> str:
    return f"IF(timestamp_ms >= 0, try_add(timestamp_ms, {delay}), NULL)"


_AT, _DELAY, _LEVEL = names.TIMES
_TIME: Final = {
    "time_name": f"""
      CASE WHEN is_given_up THEN NULL WHEN has(deliver-at) THEN '{_AT}'
        WHEN has(delay) THEN '{_DELAY}' WHEN has(level) THEN '{_LEVEL}' END""",
    "time_text": """
      CASE WHEN is_given_up THEN NULL WHEN has(deliver-at) THEN text(deliver-at)
        WHEN has(delay) THEN text(delay) ELSE text(level) END""",
}
"""Name and text of the header that gives the time.
Both are null for a retry after the last attempt, which is due at once.
"""
_ASKED_MS: Final = f"""
CASE WHEN time_name = '{_AT}' THEN coalesce(time_number, {rfc_3339_ms("time_text")})
  WHEN time_name = '{_DELAY}'
    THEN {_after(f"coalesce(time_number, {worded_delay_ms('time_text')})")}
  WHEN time_name = '{_LEVEL}' THEN {_after(level_ms("time_number", "policy.levels_ms"))}
  WHEN retry_ms > 0 THEN {_after("retry_ms")}
  ELSE greatest(timestamp_ms, CAST(0 AS bigint)) END
"""
_PAST_MS: Final = "try_subtract(timestamp_ms, asked_ms)"
_AHEAD_MS: Final = "IF(timestamp_ms >= 0, try_subtract(asked_ms, timestamp_ms), NULL)"
_DUE_CODE: Final = codes_in(f"""
- time-unreadable: timestamp_ms > {LATEST_MS}
- level-unknown: asked_ms IS NULL AND time_name <=> '{_LEVEL}' AND time_number IS NULL
- time-unreadable: asked_ms IS NULL
- time-past: time_name = '{_AT}' AND NOT has(hop-from) AND {_PAST_MS} > policy.max_past_ms
- delay-too-long: time_name IS NOT NULL AND NOT has(hop-from) AND {_AHEAD_MS} > policy.max_delay_ms
""")
"""A successor's time may be past or too far ahead, because its predecessor was accepted."""
_NOT_BEFORE_MS: Final = f"""
IF(has(hop-not-before), least({digits("text(hop-not-before)")},
  try_add(timestamp_ms, greatest(policy.max_delay_ms, CAST({LONGEST_HOP_MS} AS bigint)))), NULL)
"""
"""The not-before time, at most max_delay_ms (or LONGEST_HOP_MS) after the record was written."""
_FIRES_MS: Final = f"least(asked_wanted_ms, {_after('policy.roll_after_ms')})"
"""A record fires at its time. If retention would delete it first, it fires earlier and rolls."""
_IMMUNITY_MS: Final = delay_ms("text(check-immunity)")
_FIRST_CHECK_MS: Final = f"""
(greatest(timestamp_ms, 0) + least(coalesce({_IMMUNITY_MS}, policy.immunity_ms),
  coalesce(floor(policy.roll_after_ms / 2), policy.max_delay_ms)))
"""
"""The first check comes early enough for a decision before retention deletes the record."""
_EXPIRES_MS: Final = f"({_FIRST_CHECK_MS} + policy.max_checks * policy.check_interval_ms)"
"""An undecided half message expires one interval after its last check."""
_CHECKS: Final = f"""
IF(has(check-topic), named_struct('topic', text(check-topic),
  'first_ms', CAST({_FIRST_CHECK_MS} AS bigint), 'interval_ms', policy.check_interval_ms,
  'most', policy.max_checks), NULL)
"""
_CHECK_TOPIC: Final = "coalesce(text(check-topic), '')"
_CHECK_TIME_CODE: Final = codes_in(f"""
- time-unreadable: timestamp_ms < 0
- time-unreadable: has(check-immunity) AND {_IMMUNITY_MS} IS NULL
""")
_CHECK_TARGET_CODE: Final = _target_code(_CHECK_TOPIC, "CAST(NULL AS boolean)")
_CHECK_CODE: Final = f"""
coalesce({_CHECK_TIME_CODE}, IF(has(check-topic), {_CHECK_TARGET_CODE}, NULL))
"""
_CODE: Final = f"""
coalesce(IF(is_blurred IS NULL, 'record-unreadable', NULL), alias_code,
  IF(is_special, coalesce(opening_code, {_TRANSACTION_CODE}), NULL),
  IF(asked_kind IN ('{RECORD}', '{names.PREPARE}'), coalesce(retry_code,
    {_target_code("topic", "is_served")}, due_code,
    IF(has(partition) AND asked_partition IS NULL, 'partition-bad', NULL),
    IF(is_special, {_MOVE_CODE}, NULL),
    IF(asked_kind = '{names.PREPARE}', {_CHECK_CODE}, NULL)), NULL))
"""

# The answers: all columns of PARSED. A column is null for other kinds of records.

_IS_ENTRY: Final = f"kind IN ('{RECORD}', '{names.PREPARE}')"
_GOES_ON: Final = f"kind IN ('{RECORD}', '{REFUSED}') AND own_hop IS NOT NULL"
_IS_HALF: Final = f"kind = '{names.PREPARE}'"
_PROVES: Final = f"kind = '{RECALLS}' AND policy.proves_recalls AND NOT {_IS_SIGNED}"
_KEY_NUMBER: Final = f"""
IF(asked_key IS NOT NULL AND asked_partition IS NULL, {key_number("asked_key")}, NULL)
"""
_IDENT: Final = f"""
CASE WHEN kind = '{REFUSED}' THEN NULL WHEN kind = '{CANCELS}' THEN raw(cancel)
  WHEN kind NOT IN {quoted(TAKE_BACK)} THEN raw(id) END
"""
_TARGET: Final = f"CASE WHEN {_IS_ENTRY} THEN topic WHEN kind = '{PURGES}' THEN text(purge) END"
_LETTER_HASH: Final = f"""
IF(kind = '{REFUSED}', coalesce(raw_letter_hash, letter_hash), letter_hash)
"""


def _if(holds: str, sql: str) -> str:
    return f"IF({holds}, {sql}, NULL)"


_ANSWERS: Final = {
    "partition": ("int", "partition"),
    "offset": ("bigint", "offset"),
    "timestamp_ms": ("bigint", "timestamp_ms"),
    "kind": ("string", "kind"),
    "code": ("string", _if(f"kind = '{REFUSED}'", "code")),
    "ident": ("binary", _IDENT),
    "target": ("string", _TARGET),
    "target_partition": ("int", _if(_IS_ENTRY, "asked_partition")),
    "target_key": ("binary", _if(_IS_ENTRY, "asked_key")),
    "key_number": ("bigint", _if(_IS_ENTRY, _KEY_NUMBER)),
    "due_ms": ("bigint", _if(_IS_ENTRY, "asked_ms")),
    "wanted_ms": ("bigint", _if(_IS_ENTRY, "asked_wanted_ms")),
    "fires_ms": ("bigint", _if(_IS_ENTRY, _FIRES_MS)),
    "hop_from": ("bigint", _if(f"NOT {_IS_HALF}", "own_hop")),
    "first_origin": ("string", "text(first-origin)"),
    "first_offset": ("bigint", _if(_GOES_ON, digits("text(hop-first)"))),
    "recalled": ("bigint", _if(f"kind = '{RECALLS}'", _RECALLED)),
    "needs_proof": ("boolean", _if(_PROVES, "true")),
    "known_key": ("binary", _if(_PROVES, _if("octet_length(key) > 0", "key"))),
    "known_ident": ("binary", _if(_PROVES, _if("octet_length(raw(id)) > 0", "raw(id)"))),
    "ingress_key_hash": ("bigint", _if("octet_length(key) > 0", "xxhash64(key)")),
    "purge_from_ms": ("bigint", _if(f"kind = '{PURGES}'", _PURGE_FROM)),
    "purge_to_ms": ("bigint", _if(f"kind = '{PURGES}'", _PURGE_TO)),
    "moved_fires_ms": ("bigint", _if(_GOES_ON, digits("text(hop-fires)"))),
    "moved_due_ms": ("bigint", _if(_GOES_ON, digits("text(hop-due)"))),
    "hop_attempt": ("int", _if("is_special", "try_cast(text(hop-attempt) AS int)")),
    "expires_ms": ("bigint", _if(_IS_HALF, _EXPIRES_MS)),
    "checks": (CHECKS, _if(_IS_HALF, _CHECKS)),
    "size_bytes": ("bigint", "size_bytes"),
    "is_blurred": ("boolean", "coalesce(is_blurred, false)"),
    "key_hash": ("bigint", _if(_IS_ENTRY, "xxhash64(asked_key)")),
    "value_hash": ("bigint", "value_hash"),
    "headers_hash": ("bigint", "headers_hash"),
    "letter_hash": ("bigint", _LETTER_HASH),
}
PARSED: Final[Schema] = {name: kind for name, (kind, _) in _ANSWERS.items()}
"""The request of each ingress record.
`kind`: one of KINDS, null if no policy is known. `code`: the `timer-error` code if it is refused.
`key_number`: the number of the key that chooses the partition. `wanted_ms`: the earliest delivery.
`fires_ms`: when it is delivered or rolled. `hop_from`: the offset of its predecessor, null for a
producer's own record. `first_offset`: for a successor, the offset of the first record in its hops.
`recalled`: the offset that a recall names. `needs_proof`: whether the recall must prove that it
knows that record, by the record's key (`known_key`) or id (`known_ident`). `ingress_key_hash`: the
hash of the record's own key in the ingress. `purge_from_ms`, `purge_to_ms`: the first and last due
of a purge, whose target is a pattern. `moved_fires_ms`, `moved_due_ms`: the times that a move gives
for its predecessor. `is_blurred`: a header name has U+FFFD, or is not UTF-8. The proxy refuses only
names that are not UTF-8, but Java shows both alike.
"""


_KNOWN: Final = (*PLACE, "key", "policy_number", "is_blurred", "alias_code", "raw_letter_hash")
_HEADED: Final = ("is_forged", "value_hash", "headers_hash", "letter_hash", "size_bytes")
_SAYS_IT_IS_OWN: Final = " OR ".join(
    f"array_position(headers.key, '{name}') > 0"
    for name in (names.HOP_FROM, names.HOP_MAC, *names.PURGES)
)
_IS_OWN: Final = is_signed("partition", "key", "value", "headers", "policy")
_IS_FORGED: Final = f"""
IF(({_SAYS_IT_IS_OWN}) AND policy.hop_inner IS NOT NULL, NOT {_IS_OWN}, NULL)
"""
"""Whether a record falsely says that the proxy wrote it.
It is null if the record does not say so, or if its policy is older than signatures.
"""
_USUAL: Final = " + ".join(f"IF(named['{name}'] IS NOT NULL, 1, 0)" for name in names.ALWAYS_READ)
_SPECIAL_NAMES: Final = f"""
IF({_USUAL} = own, CAST(array() AS array<string>), filter(map_keys(named),
  name -> startswith(name, '{names.PREFIX}') AND name NOT IN {quoted(names.USUAL)}))
"""
_OWN_ID: Final = f"named['{names.ID}']"
_IS_SPECIAL: Final = f"""
(size(special_names) > 0 OR ({_OWN_ID} IS NOT NULL
  AND ({_bad_ident(f"{_OWN_ID}.value")} OR NOT {_serves("replace")})))
"""
"""Whether the record asks for more than delivery, or has an id that is bad or not served."""


def _as(columns: Mapping[str, str]) -> Iterable[str]:
    return (f"{sql} AS {name}" for name, sql in columns.items())


_REQUEST_HEADERS: Final = ", ".join(
    [f"'{name}', named['{name}']" for name in names.ALWAYS_READ]
    + [f"'{name}', IF(is_special, named['{name}'], NULL)" for name in names.SPECIAL]
)
_BY_NAME: Final = {
    "named": "map_from_arrays(headers.key, headers)",
    "own": count_of_own("headers"),
    "is_forged": _IS_FORGED,
    "value_hash": "xxhash64(value)",
    "headers_hash": headers_hash("headers"),
    "letter_hash": letter_hash("key", "headers"),
    "size_bytes": content_bytes("key", "value", "large_bytes"),
}
"""Headers by name, and fingerprints. The content is left out, because each step copies columns."""
_ATTEMPT: Final = f"IF(has(attempt), {digits('text(attempt)', 9)}, CAST(0 AS bigint))"
_RULE: Final = f"coalesce(policy.retry_groups[{_GROUP}], policy.retry)"
_HOP: Final = f"""
IF(is_special AND opening_code IS NULL AND NOT {_TAKES_BACK}, {digits("text(hop-from)")}, NULL)
"""
_OWN_HOP: Final = f"IF(kind = '{REFUSED}' AND {_MOVE_CODE} IS NOT NULL, NULL, hop)"
_KIND: Final = f"""
CASE WHEN policy_number IS NULL THEN NULL WHEN code IS NOT NULL THEN '{REFUSED}'
  ELSE asked_kind END
"""
STEPS: Final = (
    (*_KNOWN, *_as(_BY_NAME)),
    ("*", f"{_SPECIAL_NAMES} AS special_names"),
    ("*", f"{_IS_SPECIAL} AS is_special"),
    (
        *_KNOWN,
        *_HEADED,
        "special_names",
        "is_special",
        f"named_struct({_REQUEST_HEADERS}) AS request_headers",
    ),
    (
        "*",
        f"IF(is_special, {_OPENING_CODE}, NULL) AS opening_code",
        f"{_ASKED_KIND} AS asked_kind",
    ),
    (
        "*",
        f"{_HOP} AS hop",
        f"{_if(_IS_RETRY, _ATTEMPT)} AS attempt",
        f"{_if(_IS_RETRY, _RULE)} AS rule",
    ),
    ("*", *_as(_ADDRESSED)),
    ("*", *_as(_TIME)),
    ("*", f"{plain_digits('time_text')} AS time_number"),
    ("*", f"{_ASKED_MS} AS asked_ms"),
    (
        "*",
        f"IF(is_special, greatest(asked_ms, 0, {_NOT_BEFORE_MS}), asked_ms) AS asked_wanted_ms",
        f"{_DUE_CODE} AS due_code",
    ),
    ("*", f"{_CODE} AS code"),
    ("*", f"{_KIND} AS kind"),
    ("*", f"{_OWN_HOP} AS own_hop"),
    [f"CAST({sql} AS {kind}) AS {name}" for name, (kind, sql) in _ANSWERS.items()],
)
"""All steps after the policy's number was added to each record."""


def parsed(records: DataFrame, policies: Policies) -> DataFrame:
    """Return PARSED of RECORDS in the ingress."""
    read = _with_policy(records, policies.ranges)
    for columns in (*translation(policies.aliases), *STEPS):
        beside = read.withColumn("policy", policies.column("policy_number"))
        read = beside.selectExpr(*[with_headers(one, LOOKUP) for one in columns]).drop("policy")
    return read


def _with_policy(records: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return each record with its policy's number. `is_blurred` is null for a skipped record."""
    ranges = ranges.withColumnsRenamed({"partition": "policy_partition", "policy": "policy_number"})
    in_force = f.expr(
        "partition = policy_partition AND offset >= first_offset AND offset < until_offset"
    )
    joined = records.join(f.broadcast(ranges), in_force, "left")
    return joined.selectExpr(
        *(*PLACE, "key", "value", "large_bytes", "policy_number"),
        f"{as_the_proxy_reads(f'coalesce(headers, {NO_HEADERS})')} AS headers",
        f"{is_blurred('headers')} AS is_blurred",
    )
