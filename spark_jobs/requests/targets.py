"""Where a record may be sent, by the topic's name alone (docs/guide.md#where)."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.headers import INTERNAL_PREFIX, is_legal
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.error_codes import first_of, refused
from spark_jobs.requests.times import digits

PARTITION_DIGITS: Final = 10
LARGEST_PARTITION: Final = 2**31 - 1


def target_code(topic: Column, is_served: Column, policy: Column) -> Column:
    """Why the topic (null: none is named) cannot be a target.

    is_served: whether the consumer group is, of whose name the proxy makes that of the topic; null
    where it does not.
    """
    return first_of(
        refused(codes.TARGET_MISSING, topic.isNull()),
        refused(codes.TARGET_ILLEGAL, ~is_legal(topic)),
        refused(codes.TARGET_REFUSED, _is_forbidden(topic, policy)),
        refused(codes.TARGET_REFUSED, _is_reserved(topic, is_served.isNotNull(), policy)),
        refused(codes.TARGET_REFUSED, ~f.coalesce(is_served, is_topic_allowed(topic, policy))),
    )


def partition_of(text: Column) -> Column:
    """The partition number that a header says: int; null where it says none."""
    number = digits(text, PARTITION_DIGITS)
    return f.when(number <= LARGEST_PARTITION, number.cast("int"))


def partition_code(is_asked: Column, partition: Column) -> Column:
    """Why a partition that is asked for cannot be one."""
    return refused(codes.PARTITION_BAD, is_asked & partition.isNull())


def _is_forbidden(topic: Column, policy: Column) -> Column:
    return (
        f.array_contains(policy["own_topics"], topic)
        | topic.startswith(INTERNAL_PREFIX)
        | _matches(topic, policy["deny"])
    )


def _is_reserved(topic: Column, is_derived: Column, policy: Column) -> Column:
    """A name of other proxies' topics; one that is derived can only be that of marks."""
    is_asked_for = ~is_derived & _matches(topic, policy["reserved"])
    is_named = f.array_contains(policy["named"], topic)
    return ~is_named & (is_asked_for | _matches(topic, policy["marks"]))


def _matches(topic: Column, pattern: Column) -> Column:
    return pattern.isNotNull() & f.rlike(topic, pattern)


def is_topic_allowed(topic: Column, policy: Column) -> Column:
    """Whether `targets.allow` has a pattern for it."""
    return policy["allow"].isNull() | f.rlike(topic, policy["allow"])
