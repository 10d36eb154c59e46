"""Records that a consumer could not process and sends back (docs/guide.md#retries-of-consumers).

The n-th retry waits as its group's rule says; a record that has failed too often goes to the
group's dead-letter topic at once.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.headers import ATTEMPT, RETRY_GROUP, TOPIC, RequestHeaders
from spark_jobs.requests.error_codes import RETRY_BAD, refused
from spark_jobs.requests.targets import is_topic_allowed
from spark_jobs.requests.times import digits

ATTEMPT_DIGITS: Final = 9


class Retry(NamedTuple):
    """What a retry asks for.

    delay_ms: null for a record that has failed too often. is_derived: the topic is the group's;
    is_served: whether that group may have one.
    """

    code: Column
    is_exhausted: Column
    delay_ms: Column
    topic: Column
    is_derived: Column
    is_served: Column


def asks_retry(headers: RequestHeaders) -> Column:
    """Whether a record is one to be tried again."""
    return headers.has(RETRY_GROUP) | headers.has(ATTEMPT)


def attempt_of(headers: RequestHeaders) -> Column:
    """How often it failed before; null where that cannot be read."""
    none = f.lit(0).cast("bigint")
    attempt = digits(headers.text(ATTEMPT), ATTEMPT_DIGITS)
    return f.when(headers.has(ATTEMPT), attempt).otherwise(none)


def rule_of(headers: RequestHeaders, policy: Column) -> Column:
    """Its group's rule: a struct of delays_ms and max_attempts."""
    return f.coalesce(policy["retry_groups"][headers.text(RETRY_GROUP)], policy["retry"])


def retry_of(headers: RequestHeaders, policy: Column, attempt: Column, rule: Column) -> Retry:
    """A record's request to be tried again, by its `attempt_of` and `rule_of`."""
    group = headers.text(RETRY_GROUP)
    is_exhausted = attempt >= rule["max_attempts"]
    names_topic = headers.raw(TOPIC).isNotNull()
    is_nobodys = f.coalesce(group, f.lit("")) == ""
    return Retry(
        refused(RETRY_BAD, is_nobodys | attempt.isNull()),
        is_exhausted,
        f.when(~is_exhausted, _delay_ms(rule["delays_ms"], attempt)),
        f.when(is_exhausted, f.concat(policy["dlq_prefix"], group))
        .when(names_topic, headers.text(TOPIC))
        .otherwise(f.concat(policy["retry_prefix"], group)),
        is_exhausted | ~names_topic,
        _is_served(group, policy),
    )


def _is_served(group: Column, policy: Column) -> Column:
    """Whether the settings name the group, or allow its retry topic."""
    is_named = policy["retry_groups"][group].isNotNull()
    is_allowed = is_topic_allowed(f.concat(policy["retry_prefix"], group), policy)
    return ~policy["checks_groups"] | is_named | is_allowed


def _delay_ms(delays_ms: Column, attempt: Column) -> Column:
    """The last delay counts for all retries beyond."""
    return f.get(delays_ms, f.least(attempt, f.size(delays_ms) - 1).cast("int"))
