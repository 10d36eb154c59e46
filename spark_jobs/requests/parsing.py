"""What each ingress record asks for: the audit's own reading of docs/guide.md.

The steps of a record: its policy is found, other schedulers' headers are translated, the headers
are sorted by name, requests beyond plain delivery are read, then where and when it is to go, and
last what is wrong with it. Each step is one select, so that nothing is computed twice; conditions
keep plain records from what costs most.
"""

from functools import lru_cache, reduce
from operator import or_
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.records import hashes as hop_macs
from spark_jobs.records import headers as names
from spark_jobs.records.hashes import (
    FINGERPRINTS,
    bytes_hash,
    content_bytes,
    headers_hash,
    key_number,
    letter_hash,
)
from spark_jobs.records.headers import (
    NO_HEADERS,
    RequestHeaders,
    as_the_proxy_reads,
    by_name,
    count_of_own,
    is_blurred,
    position_of,
    request_headers,
    special_names_in,
)
from spark_jobs.requests import controls, due_times, retries
from spark_jobs.requests.aliases import translation
from spark_jobs.requests.error_codes import RECORD_UNREADABLE, first_of
from spark_jobs.requests.policies import Policies, policy_of
from spark_jobs.requests.targets import partition_code, partition_of, target_code
from spark_jobs.requests.times import digits, plain_digits
from spark_jobs.runtime.frames import Schema, conformed

REFUSED: Final = "refused"
MOST_STEPS: Final = 8
"""Sets of policies whose steps are kept: an audit without end meets new ones now and then."""
KINDS: Final = (
    controls.RECORD,
    names.PREPARE,
    *controls.DECISIONS,
    controls.CANCELS,
    controls.RECALLS,
    controls.PURGES,
    REFUSED,
)
PLACE: Final = ("partition", "offset", "timestamp_ms")
PARSED: Final[Schema] = {
    "partition": "int",
    "offset": "bigint",
    "timestamp_ms": "bigint",
    "kind": "string",
    "code": "string",
    "ident": "binary",
    "target": "string",
    "target_partition": "int",
    "target_key": "binary",
    "key_number": "bigint",
    "due_ms": "bigint",
    "wanted_ms": "bigint",
    "fires_ms": "bigint",
    "hop_from": "bigint",
    "first_origin": "string",
    "first_offset": "bigint",
    "recalled": "bigint",
    "needs_proof": "boolean",
    "known_key": "binary",
    "known_ident": "binary",
    "ingress_key_hash": "bigint",
    "purge_from_ms": "bigint",
    "purge_to_ms": "bigint",
    "moved_fires_ms": "bigint",
    "moved_due_ms": "bigint",
    "hop_attempt": "int",
    "expires_ms": "bigint",
    "checks": controls.CHECKS,
    "size_bytes": "bigint",
    "is_blurred": "boolean",
    "raw_letter_hash": "bigint",
    **FINGERPRINTS,
}
"""What each ingress record asks for. kind: one of KINDS; `code` says why refused. wanted_ms: when
it may be delivered at the soonest; fires_ms: when it is taken up, to be delivered or rolled.
hop_from: the offset of the record that it goes on from, null for a producer's own; first_offset: of
a successor, that of the record that all hops have come from; recalled: of a recall, that of what it
names; needs_proof: whether it must prove that it knows that, by known_key or known_ident.
ingress_key_hash: of the key that may prove this, null without one. purge_from_ms, purge_to_ms: of a
purge, the first and the last due; its target is a pattern.
moved_fires_ms, moved_due_ms: of a record that is to take the place of the one at hop_from, if that
still waits, what it says of that one; null for others. key_number: what a key counts as where it
chooses the partition, null without a key. size_bytes: of key and value. is_blurred: a header's name
has U+FFFD, or bytes that are not UTF-8, for which the proxy refuses the record: Java shows both
alike. raw_letter_hash: what a dead letter shows of a record with another scheduler's headers that
was not even read for its due; null without such headers."""

Select: TypeAlias = list[Column | str]
"""What a step makes of each record."""


def parsed(records: DataFrame, policies: Policies) -> DataFrame:
    """PARSED, a row for each of RECORDS in the ingress. One for which no policy is known has a null
    kind."""
    read = _with_policy(records, policies.ranges)
    for columns in _steps(policies.aliases, policies.texts):
        read = read.select(*columns)
    return conformed(read, PARSED)


def _with_policy(records: DataFrame, ranges: DataFrame) -> DataFrame:
    """Each record beside the number of the policy (RANGES) that was in force at its offset. Of a
    skipped record is_blurred is null."""
    ranges = ranges.withColumnRenamed("partition", "policy_partition")
    in_force = f.expr(
        "partition = policy_partition AND offset >= first_offset AND offset < until_offset"
    )
    joined = records.join(f.broadcast(ranges), in_force, "left")
    headers = f.col("headers")
    return joined.select(
        *PLACE,
        "key",
        "value",
        "large_bytes",
        as_the_proxy_reads(f.coalesce(headers, f.expr(NO_HEADERS))).alias("headers"),
        is_blurred(headers).alias("is_blurred"),
        "policy",
    )


@lru_cache(MOST_STEPS)
def _steps(aliases: frozenset[str], policies: str) -> list[Select]:
    """All that is done to a record beside the number of its policy. Built once: that takes seconds,
    and is the same for all records."""
    policy = policy_of(f.col("policy"), policies)
    return [
        *translation(aliases, policy),
        *_headed(policy),
        *_controlled(policy),
        *_addressed(policy),
        *_timed(policy),
        *_answered(policy),
    ]


def _headed(policy: Column) -> list[Select]:
    """The headers by name, and fingerprints of what must arrive: the content itself stays behind,
    since each step copies what it leaves for the next."""
    headers, named = f.col("headers"), f.col("named")
    known = (*PLACE, "key", "policy", "is_blurred", "alias_code", "raw_letter_hash")
    return [
        [
            *known,
            by_name(headers).alias("named"),
            count_of_own(headers).alias("own"),
            _is_forged(policy).alias("is_forged"),
            bytes_hash(f.col("value")).alias("value_hash"),
            headers_hash(headers).alias("headers_hash"),
            letter_hash(f.col("key"), headers).alias("letter_hash"),
            content_bytes(f.col("key"), f.col("value"), f.col("large_bytes")).alias("size_bytes"),
        ],
        ["*", special_names_in(named, f.col("own")).alias("special_names")],
        ["*", _is_special(named, policy).alias("is_special")],
        [
            *known,
            "special_names",
            "is_special",
            request_headers(named, f.col("is_special")).alias("request_headers"),
            *("is_forged", "value_hash", "headers_hash", "letter_hash", "size_bytes"),
        ],
    ]


def _is_special(named: Column, policy: Column) -> Column:
    """Records beyond plain delivery; a bad id is found before other faults."""
    ident = named[names.ID]
    is_bad = ident.isNotNull() & (
        controls.is_bad_ident(ident["value"]) | ~controls.is_served(policy, "replace")
    )
    return (f.size(f.col("special_names")) > 0) | is_bad


def _is_forged(policy: Column) -> Column:
    """Whether a record says that the proxy wrote it, which did not; null where it is not said, or
    where the policy is from before it was signed."""
    headers = f.col("headers")
    is_own = hop_macs.is_own(f.col("partition"), f.col("key"), f.col("value"), headers, policy)
    says_so = reduce(
        or_, (position_of(headers, n) > 0 for n in (names.HOP_FROM, names.HOP_MAC, *names.PURGES))
    )
    return f.when(says_so & policy["hop_inner"].isNotNull(), ~is_own)


def _controlled(policy: Column) -> list[Select]:
    """What is asked for beyond plain delivery, if anything is."""
    headers, is_special = _headers(), f.col("is_special")
    code = controls.opening_code(
        headers,
        f.col("special_names"),
        policy,
        f.col("partition"),
        f.col("offset"),
        f.col("is_forged"),
    )
    hop = f.when(is_special & f.col("opening_code").isNull(), controls.hop_from(headers, policy))
    return [
        [
            "*",
            f.when(is_special, code).alias("opening_code"),
            f.when(is_special, controls.asked_kind(headers, policy))
            .otherwise(f.lit(controls.RECORD))
            .alias("asked_kind"),
        ],
        ["*", hop.alias("hop")],
    ]


def _addressed(policy: Column) -> list[Select]:
    """Where to, at which partition, with which key; and what a retry says of where and when."""
    headers = _headers()
    is_retry = f.col("is_special") & retries.asks_retry(headers)
    retry = retries.retry_of(headers, policy, f.col("attempt"), f.col("rule"))
    gives_up = f.when(is_retry & ~headers.has(names.HOP_FROM), retry.is_exhausted)
    partition = f.when(headers.has(names.PARTITION), partition_of(headers.text(names.PARTITION)))
    return [
        [
            "*",
            f.when(is_retry, retries.attempt_of(headers)).alias("attempt"),
            f.when(is_retry, retries.rule_of(headers, policy)).alias("rule"),
        ],
        [
            "*",
            f.when(is_retry, retry.code).alias("retry_code"),
            f.when(is_retry, retry.topic).otherwise(headers.text(names.TOPIC)).alias("topic"),
            f.when(is_retry & retry.is_derived, retry.is_served).alias("is_served"),
            f.when(is_retry, retry.delay_ms).alias("retry_ms"),
            f.coalesce(gives_up, f.lit(False)).alias("is_given_up"),
            partition.alias("asked_partition"),
            f.when(headers.has(names.KEY), headers.raw(names.KEY))
            .otherwise(f.col("key"))
            .alias("asked_key"),
        ],
    ]


def _timed(policy: Column) -> list[Select]:
    """When. A record that has failed too often is given up at once, whatever time it asks for."""
    headers, timestamp_ms = _headers(), f.col("timestamp_ms")
    header = due_times.TimeHeader(f.col("time_name"), f.col("time_text"), f.col("time_number"))
    counts, due = ~f.col("is_given_up"), f.col("asked_ms")
    wanted = f.when(f.col("is_special"), due_times.wanted_ms(headers, timestamp_ms, policy, due))
    code = due_times.due_code(header, timestamp_ms, policy, due, headers.has(names.HOP_FROM))
    return [
        [
            "*",
            f.when(counts, due_times.time_name(headers)).alias("time_name"),
            f.when(counts, due_times.time_text(headers)).alias("time_text"),
        ],
        ["*", plain_digits(header.text).alias("time_number")],
        ["*", due_times.due_ms(header, timestamp_ms, policy, f.col("retry_ms")).alias("asked_ms")],
        ["*", wanted.otherwise(due).alias("asked_wanted_ms"), code.alias("due_code")],
        ["*", _code(headers, policy).alias("code")],
    ]


def _code(headers: RequestHeaders, policy: Column) -> Column:
    """What is wrong with the record: the first that is found, in the order of its reading."""
    kind, partition = f.col("asked_kind"), f.col("asked_partition")
    return first_of(
        f.when(f.col("is_blurred").isNull(), f.lit(RECORD_UNREADABLE)),
        f.col("alias_code"),
        f.when(
            f.col("is_special"),
            first_of(
                f.col("opening_code"), controls.transaction_code(headers, policy, f.col("hop"))
            ),
        ),
        f.when(
            kind.isin(controls.RECORD, names.PREPARE),
            first_of(
                f.col("retry_code"),
                target_code(f.col("topic"), f.col("is_served"), policy),
                f.col("due_code"),
                partition_code(headers.has(names.PARTITION), partition),
                f.when(f.col("is_special"), controls.move_code(headers)),
                f.when(
                    kind == names.PREPARE,
                    controls.check_code(headers, f.col("timestamp_ms"), policy),
                ),
            ),
        ),
    )


def _answered(policy: Column) -> list[Select]:
    """The columns of PARSED; what a kind of record does not have is null."""
    headers, kind = _headers(), f.col("kind")
    is_entry, is_refused = kind.isin(controls.RECORD, names.PREPARE), kind == REFUSED
    is_purge = kind == controls.PURGES
    hop = f.when(~(is_refused & controls.move_code(headers).isNotNull()), f.col("hop"))
    goes_on = kind.isin(controls.RECORD, REFUSED) & hop.isNotNull()
    ident = f.when(kind == controls.CANCELS, headers.raw(names.CANCEL)).otherwise(
        f.when(~kind.isin(*controls.TAKE_BACK), headers.raw(names.ID))
    )
    from_ms = controls.purge_ms(headers, names.PURGE_FROM, controls.FIRST_MS)
    to_ms = controls.purge_ms(headers, names.PURGE_TO, controls.LAST_MS)
    recalled = controls.recalled(headers, policy, f.col("partition"), f.col("offset"))
    key = _if_any(f.col("key"))
    has_proof = controls.needs_proof(headers, policy, f.col("is_forged"))
    needs_proof = f.when((kind == controls.RECALLS) & has_proof, f.lit(True))
    fires = due_times.fires_ms(f.col("asked_wanted_ms"), f.col("timestamp_ms"), policy)
    hop_attempt = f.when(f.col("is_special"), headers.text(names.HOP_ATTEMPT).try_cast("int"))
    chooses = f.col("asked_key").isNotNull() & f.col("asked_partition").isNull()
    shown = f.coalesce(f.col("raw_letter_hash"), f.col("letter_hash"))
    expires = controls.expires_ms(headers, f.col("timestamp_ms"), policy)
    answers = {
        "code": f.when(is_refused, f.col("code")),
        "ident": f.when(~is_refused, ident),
        "target": f.when(is_entry, f.col("topic")).when(is_purge, headers.text(names.PURGE)),
        "target_partition": f.when(is_entry, f.col("asked_partition")),
        "target_key": f.when(is_entry, f.col("asked_key")),
        "key_number": f.when(is_entry & chooses, key_number(f.col("asked_key"))),
        "due_ms": f.when(is_entry, f.col("asked_ms")),
        "wanted_ms": f.when(is_entry, f.col("asked_wanted_ms")),
        "fires_ms": f.when(is_entry, fires),
        "hop_from": f.when(kind != names.PREPARE, hop),
        "first_origin": headers.text(names.FIRST_ORIGIN),
        "first_offset": f.when(goes_on, digits(headers.text(names.HOP_FIRST))),
        "recalled": f.when(kind == controls.RECALLS, recalled),
        "needs_proof": needs_proof,
        "known_key": f.when(needs_proof, key),
        "known_ident": f.when(needs_proof, _if_any(headers.raw(names.ID))),
        "ingress_key_hash": bytes_hash(key),
        "purge_from_ms": f.when(is_purge, from_ms),
        "purge_to_ms": f.when(is_purge, to_ms),
        "moved_fires_ms": f.when(goes_on, digits(headers.text(names.HOP_FIRES))),
        "moved_due_ms": f.when(goes_on, digits(headers.text(names.HOP_DUE))),
        "hop_attempt": hop_attempt,
        "expires_ms": f.when(kind == names.PREPARE, expires),
        "checks": f.when(
            kind == names.PREPARE, controls.checks(headers, f.col("timestamp_ms"), policy)
        ),
        "key_hash": f.when(is_entry, bytes_hash(f.col("asked_key"))),
        "size_bytes": f.col("size_bytes"),
        "is_blurred": f.coalesce("is_blurred", f.lit(False)),
        "raw_letter_hash": f.when(~is_refused, f.col("raw_letter_hash")),
        "value_hash": f.col("value_hash"),
        "headers_hash": f.col("headers_hash"),
        "letter_hash": f.when(is_refused, shown).otherwise(f.col("letter_hash")),
    }
    columns = [column.alias(name) for name, column in answers.items()]
    return [["*", _kind().alias("kind")], [*PLACE, "kind", *columns]]


def _if_any(content: Column) -> Column:
    return f.when(f.octet_length(content) > 0, content)


def _kind() -> Column:
    """Null where no policy is known for the record."""
    return f.when(
        f.col("policy").isNotNull(),
        f.when(f.col("code").isNotNull(), f.lit(REFUSED)).otherwise(f.col("asked_kind")),
    )


def _headers() -> RequestHeaders:
    return RequestHeaders(f.col("request_headers"))
