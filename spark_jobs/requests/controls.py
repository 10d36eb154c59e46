"""Headers beyond plain delivery: ids, cancels, half messages, and what the proxy wrote itself.

Column expressions; only records that have such a header come here.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records import headers as names
from spark_jobs.records.headers import RequestHeaders
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.error_codes import first_of, refused
from spark_jobs.requests.targets import target_code
from spark_jobs.requests.times import delay_ms, digits

LONGEST_ID_BYTES: Final = 256
OFFSET: Final = r"\A(0|[1-9][0-9]{0,17})\z"
RECORD: Final = "record"
CANCELS: Final = "cancel"
RECALLS: Final = "recall"
PURGES: Final = "purge"
TARGETS_PATTERN: Final = r"\A[a-zA-Z0-9._*?\[\]!-]{1,249}\z"
FIRST_MS: Final = 0
LAST_MS: Final = 2**63 - 1
"""A purge that names no times means all from the one to the other."""
CHECKS: Final = "struct<topic:string,first_ms:bigint,interval_ms:bigint,most:bigint>"
"""Where check-backs go, when the first is due, how long after it each next one, how many."""
DECISIONS: Final = (names.COMMIT, names.ROLLBACK, names.EXPIRE)
TAKE_BACK: Final = (CANCELS, RECALLS, PURGES)
CONTROLS: Final = (*TAKE_BACK, *DECISIONS)
"""Kinds of records that say something about others, and are not delivered. Such a tuple reads in
SQL as it does in Python."""


def is_bad_ident(raw: Column) -> Column:
    """Whether a header that is there cannot be an id."""
    return raw.isNull() | ~f.octet_length(raw).between(1, LONGEST_ID_BYTES)


def is_served(policy: Column, kind: str) -> Column:
    """Whether producers may ask for this: cancel, recall, replace, retry or transaction."""
    return policy["serves"].isNull() | f.array_contains(policy["serves"], kind)


def is_recall(headers: RequestHeaders, policy: Column) -> Column:
    """Whether a record takes another one back by its origin: since there are recalls."""
    return headers.has(names.RECALL) & policy["recalls_in"].isNotNull()


def recalled(headers: RequestHeaders, policy: Column, partition: Column, offset: Column) -> Column:
    """The offset in the origin that a recall names: of an earlier record of its partition; null
    where it names none."""
    origin = headers.text(names.RECALL)
    prefix = f.concat(policy["recalls_in"], f.lit("/"), partition, f.lit("/"))
    named = f.substring(origin, f.length(prefix) + 1, f.length(origin))
    found = f.when(origin.startswith(prefix) & named.rlike(OFFSET), named.try_cast("bigint"))
    return f.when(found < offset, found)


def needs_proof(headers: RequestHeaders, policy: Column, is_forged: Column) -> Column:
    """Whether a recall must prove that it knows its record: the proxy's own does not."""
    return policy["proves_recalls"] & ~_is_signed(headers, is_forged)


def is_purge(headers: RequestHeaders, policy: Column) -> Column:
    """Whether a record ends what waits for some targets: since there are recalls."""
    decides = headers.has(names.CANCEL) | is_recall(headers, policy)
    return headers.has_any(names.PURGES) & policy["recalls_in"].isNotNull() & ~decides


def purge_ms(headers: RequestHeaders, name: str, otherwise_ms: int) -> Column:
    """The first or the last due of what is purged; null where it cannot be read."""
    return f.when(headers.has(name), digits(headers.text(name))).otherwise(otherwise_ms)


def takes_back(headers: RequestHeaders, policy: Column) -> Column:
    """Whether the record is a cancel, a recall or a purge, whatever else it asks for."""
    is_one = headers.has(names.CANCEL) | is_recall(headers, policy)
    return is_one | is_purge(headers, policy)


def asked_kind(headers: RequestHeaders, policy: Column) -> Column:
    """What a record would be if nothing is wrong with it."""
    transaction = headers.text(names.TRANSACTION)
    return (
        f.when(headers.has(names.CANCEL), f.lit(CANCELS))
        .when(is_recall(headers, policy), f.lit(RECALLS))
        .when(is_purge(headers, policy), f.lit(PURGES))
        .when(transaction.isin(names.PREPARE, *DECISIONS), transaction)
        .otherwise(f.lit(RECORD))
    )


def opening_code(
    headers: RequestHeaders,
    special_names: Column,
    policy: Column,
    partition: Column,
    offset: Column,
    is_forged: Column,
) -> Column:
    """What is wrong before it is known whether the proxy wrote the record to go on from another."""
    is_signed = _is_signed(headers, is_forged)
    is_forged = f.coalesce(is_forged, f.lit(False))
    is_bad_hop = ~_is_whole_hop(headers, offset) | is_forged
    return first_of(
        _unknown_header_code(headers, special_names, policy),
        f.when(
            headers.has(names.CANCEL),
            first_of(
                refused(codes.HEADER_UNSUPPORTED, ~is_served(policy, "cancel") & ~is_signed),
                refused(codes.ID_BAD, is_bad_ident(headers.raw(names.CANCEL))),
            ),
        )
        .when(
            is_recall(headers, policy),
            first_of(
                refused(codes.HEADER_UNSUPPORTED, ~is_served(policy, "recall") & ~is_signed),
                refused(codes.RECALL_BAD, recalled(headers, policy, partition, offset).isNull()),
            ),
        )
        .when(
            is_purge(headers, policy),
            refused(codes.PURGE_BAD, is_forged | ~_is_whole_purge(headers)),
        )
        .otherwise(
            first_of(
                refused(codes.ID_BAD, headers.has(names.ID) & is_bad_ident(headers.raw(names.ID))),
                refused(codes.HOP_BAD, headers.has_any(names.HOPS) & is_bad_hop),
                refused(
                    codes.HEADER_UNSUPPORTED,
                    ~headers.has(names.HOP_FROM) & ~_is_entry_served(headers, policy),
                ),
            )
        ),
    )


def hop_from(headers: RequestHeaders, policy: Column) -> Column:
    """The offset that a record goes on from; null for a producer's own, and for what takes back."""
    return f.when(~takes_back(headers, policy), digits(headers.text(names.HOP_FROM)))


def transaction_code(headers: RequestHeaders, policy: Column, hop: Column) -> Column:
    """What is wrong with a half message or a decision. Only the proxy itself asks for expiry."""
    transaction = headers.text(names.TRANSACTION)
    is_own = transaction.eqNullSafe(names.EXPIRE) == hop.isNotNull()
    is_decision = f.coalesce(transaction.isin(*DECISIONS), f.lit(False)) & is_own
    return f.when(
        headers.has(names.TRANSACTION) & ~takes_back(headers, policy),
        first_of(
            refused(codes.TRANSACTION_BAD, ~transaction.eqNullSafe(names.PREPARE) & ~is_decision),
            refused(codes.ID_BAD, ~headers.has(names.ID)),
        ),
    )


def move_code(headers: RequestHeaders) -> Column:
    """What is wrong with a record that is to take the place of another one: it says both of that
    one's times."""
    is_whole = headers.has(names.HOP_FIRES) & headers.has(names.HOP_DUE)
    return refused(codes.HOP_BAD, headers.has_any(names.MOVES) & ~is_whole)


def check_code(headers: RequestHeaders, timestamp_ms: Column, policy: Column) -> Column:
    """What is wrong with the checks of a half message. They are counted from its timestamp."""
    topic = f.coalesce(headers.text(names.CHECK_TOPIC), f.lit(""))
    return first_of(
        refused(codes.TIME_UNREADABLE, timestamp_ms < 0),
        refused(
            codes.TIME_UNREADABLE,
            headers.has(names.CHECK_IMMUNITY) & _immunity_ms(headers).isNull(),
        ),
        f.when(headers.has(names.CHECK_TOPIC), target_code(topic, f.lit(None), policy)),
    )


def expires_ms(headers: RequestHeaders, timestamp_ms: Column, policy: Column) -> Column:
    """When a half message expires that nobody decides: one interval after its last check.

    It must be decided before it ages out: so the time until the first check has a bound.
    """
    return _first_check_ms(headers, timestamp_ms, policy) + (
        policy["max_checks"] * policy["check_interval_ms"]
    )


def checks(headers: RequestHeaders, timestamp_ms: Column, policy: Column) -> Column:
    """The check-backs that a half message asks for: CHECKS, null for none."""
    asked = f.struct(
        headers.text(names.CHECK_TOPIC).alias("topic"),
        _first_check_ms(headers, timestamp_ms, policy).cast("bigint").alias("first_ms"),
        policy["check_interval_ms"].alias("interval_ms"),
        policy["max_checks"].alias("most"),
    )
    return f.when(headers.has(names.CHECK_TOPIC), asked)


def _first_check_ms(headers: RequestHeaders, timestamp_ms: Column, policy: Column) -> Column:
    half_ms = f.floor(policy["roll_after_ms"] / 2)
    longest_ms = f.coalesce(half_ms, policy["max_delay_ms"])
    asked_ms = f.coalesce(_immunity_ms(headers), policy["immunity_ms"])
    return f.greatest(timestamp_ms, f.lit(0)) + f.least(asked_ms, longest_ms)


def _unknown_header_code(headers: RequestHeaders, special_names: Column, policy: Column) -> Column:
    has_recalls = policy["recalls_in"].isNotNull()
    unknown = f.get(
        f.filter(
            special_names,
            lambda name: (
                ~name.isin(*names.KNOWN) | (name.isin(*names.SINCE_RECALLS) & ~has_recalls)
            ),
        ),
        f.lit(0),
    )
    decides = headers.has_any((names.RECALL, names.PURGE)) & has_recalls
    return f.when(
        ~(headers.has(names.CANCEL) | decides),
        first_of(
            refused(codes.HEADER_UNREADABLE, unknown == names.UNREADABLE),
            refused(codes.HEADER_UNKNOWN, unknown.isNotNull()),
        ),
    )


def _is_signed(headers: RequestHeaders, is_forged: Column) -> Column:
    return headers.has(names.HOP_MAC) & ~f.coalesce(is_forged, f.lit(False))


def _is_entry_served(headers: RequestHeaders, policy: Column) -> Column:
    """Whether a producer may ask for all that a record asks for which takes nothing back."""
    is_retry = headers.has(names.RETRY_GROUP) | headers.has(names.ATTEMPT)
    is_decided = headers.has(names.TRANSACTION)
    kind = f.when(is_decided, is_served(policy, "transaction")).otherwise(
        ~headers.has(names.ID) | is_served(policy, "replace")
    )
    return kind & (~is_retry | is_served(policy, "retry"))


def _is_whole_hop(headers: RequestHeaders, offset: Column) -> Column:
    """Whether the proxy's own headers are as the proxy writes them."""
    is_whole = headers.has(names.FIRST_ORIGIN) | headers.text(names.TRANSACTION).eqNullSafe(
        names.EXPIRE
    )
    for name in names.HOP_NUMBERS:
        is_whole &= ~headers.has(name) | digits(headers.text(name)).isNotNull()
    return is_whole & f.coalesce(digits(headers.text(names.HOP_FROM)) < offset, f.lit(False))


def _is_whole_purge(headers: RequestHeaders) -> Column:
    """Whether a purge is as the proxy writes it."""
    is_pattern = headers.text(names.PURGE).rlike(TARGETS_PATTERN)
    from_ms = purge_ms(headers, names.PURGE_FROM, FIRST_MS)
    to_ms = purge_ms(headers, names.PURGE_TO, LAST_MS)
    return f.coalesce(is_pattern, f.lit(False)) & from_ms.isNotNull() & to_ms.isNotNull()


def _immunity_ms(headers: RequestHeaders) -> Column:
    return delay_ms(headers.text(names.CHECK_IMMUNITY))
