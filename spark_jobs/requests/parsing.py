"""What each ingress record asks for: the audit's own reading of docs/guide.md.

The journey of a record: its policy is found, its headers are put in order, requests beyond plain
delivery are read, then where and when it is to go, and last what is wrong with it. Each step is one
select, so that nothing is worked out twice; conditions keep plain records from the dear parts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.records.fingerprints import bytes_hash, headers_hash, letter_hash
from spark_jobs.records.header_names import (
    CANCEL,
    FIRST_ORIGIN,
    HOP_ATTEMPT,
    HOP_FROM,
    ID,
    KEY,
    PARTITION,
    PREPARE,
    TOPIC,
)
from spark_jobs.records.headers import Said, beyond_usual, by_name, how_many_ours, said_in
from spark_jobs.records.murmur2 import key_number
from spark_jobs.requests.aliases.translation import aliases_in, translated
from spark_jobs.requests.controls import (
    CANCELS,
    RECORD,
    asked_kind,
    check_code,
    expires_ms,
    hop_from,
    is_bad_ident,
    opening_code,
    transaction_code,
)
from spark_jobs.requests.due_times import (
    Told,
    due_code,
    due_ms,
    fires_ms,
    time_name,
    time_text,
    wanted_ms,
)
from spark_jobs.requests.error_codes import first_of
from spark_jobs.requests.retries import asks_retry, attempt_of, retry_of, rule_of
from spark_jobs.requests.targets import partition_code, partition_of, target_code
from spark_jobs.requests.times import plain_digits
from spark_jobs.runtime.schemas import ASKED, conformed

REFUSED: Final = "refused"
PLACE: Final = ("partition", "offset", "timestamp_ms")


def asked(records: DataFrame, policies: DataFrame) -> DataFrame:
    """ASKED, a row for each of RECORDS in the ingress, by POLICIES.

    A record that no policy is known to judge has a null kind. Asks Spark which aliases the policies
    have; else nothing runs.
    """
    judged = _judged(records, policies)
    aliases = aliases_in(policies)
    read = translated(judged, aliases) if aliases else _untranslated(judged)
    return conformed(_answered(_timed(_addressed(_controlled(_headed(read))))), ASKED)


def _judged(records: DataFrame, policies: DataFrame) -> DataFrame:
    """Each record beside the policy that judges it."""
    rules = policies.select(
        f.col("partition").alias("judged_partition"),
        "first_offset",
        "until_offset",
        f.struct("*").alias("policy"),
    )
    is_judge = (
        (f.col("partition") == f.col("judged_partition"))
        & (f.col("offset") >= f.col("first_offset"))
        & (f.col("offset") < f.col("until_offset"))
    )
    joined = records.join(f.broadcast(rules), is_judge, "left")
    return joined.select(*PLACE, "key", "value", "headers", "policy")


def _untranslated(judged: DataFrame) -> DataFrame:
    return judged.select(
        "*",
        f.lit(None).cast("string").alias("alias_code"),
        f.lit(None).cast("bigint").alias("raw_letter_hash"),
    )


def _headed(read: DataFrame) -> DataFrame:
    """The headers by name, and fingerprints of what must arrive: the value itself stays behind."""
    headers, named = f.col("headers"), f.col("named")
    return (
        read.select("*", by_name(headers).alias("named"))
        .select("*", beyond_usual(named, how_many_ours(headers)).alias("strangers"))
        .select("*", _is_special(named, f.col("policy")).alias("is_special"))
        .select(
            *PLACE,
            "key",
            "policy",
            "alias_code",
            "raw_letter_hash",
            "strangers",
            "is_special",
            said_in(named, f.col("is_special")).alias("said"),
            bytes_hash(f.col("value")).alias("value_hash"),
            headers_hash(headers).alias("headers_hash"),
            letter_hash(f.col("key"), headers).alias("letter_hash"),
        )
    )


def _is_special(named: Column, policy: Column) -> Column:
    """Policies of the first protocol know no ids; a bad id needs to be told from other faults."""
    ident = named[ID]
    is_strange = is_bad_ident(ident["value"]) | f.coalesce(policy["protocol"] < 2, f.lit(False))
    return (f.size(f.col("strangers")) > 0) | (ident.isNotNull() & is_strange)


def _controlled(headed: DataFrame) -> DataFrame:
    """What is asked for beyond plain delivery, if anything is."""
    said, is_special = Said(f.col("said")), f.col("is_special")
    code = opening_code(said, f.col("strangers"), f.col("offset"), f.col("policy"))
    hop = f.when(is_special & f.col("opening_code").isNull(), hop_from(said))
    return headed.select(
        "*",
        f.when(is_special, code).alias("opening_code"),
        f.when(is_special, asked_kind(said)).otherwise(f.lit(RECORD)).alias("asked_kind"),
    ).select("*", hop.alias("hop"))


def _addressed(controlled: DataFrame) -> DataFrame:
    """Where to, at which partition, with which key; and what a retry says of where and when."""
    said, policy = Said(f.col("said")), f.col("policy")
    is_retry = f.col("is_special") & asks_retry(said)
    retry = retry_of(said, policy, f.col("attempt"), f.col("rule"))
    gives_up = f.when(is_retry & ~said.has(HOP_FROM), retry.is_exhausted)
    key = f.when(said.has(KEY), said.raw(KEY)).otherwise(f.col("key"))
    return controlled.select(
        "*",
        f.when(is_retry, attempt_of(said)).alias("attempt"),
        f.when(is_retry, rule_of(said, policy)).alias("rule"),
    ).select(
        "*",
        f.when(is_retry, retry.code).alias("retry_code"),
        f.when(is_retry, retry.topic).otherwise(said.text(TOPIC)).alias("topic"),
        f.when(is_retry, retry.is_derived).otherwise(f.lit(False)).alias("is_derived"),
        f.when(is_retry, retry.delay_ms).alias("retry_ms"),
        f.coalesce(gives_up, f.lit(False)).alias("is_given_up"),
        f.when(said.has(PARTITION), partition_of(said.text(PARTITION))).alias("asked_partition"),
        key.alias("asked_key"),
    )


def _timed(addressed: DataFrame) -> DataFrame:
    """When. A record that has failed too often is given up at once, whatever time it asks for."""
    said, policy, timestamp_ms = Said(f.col("said")), f.col("policy"), f.col("timestamp_ms")
    told = Told(f.col("time_name"), f.col("time_text"), f.col("time_number"))
    counts = ~f.col("is_given_up")
    wanted = wanted_ms(said, timestamp_ms, policy, f.col("asked_ms"))
    return (
        addressed.select(
            "*",
            f.when(counts, time_name(said)).alias("time_name"),
            f.when(counts, time_text(said)).alias("time_text"),
        )
        .select("*", plain_digits(told.text).alias("time_number"))
        .select("*", due_ms(told, timestamp_ms, policy, f.col("retry_ms")).alias("asked_ms"))
        .select(
            "*",
            f.when(f.col("is_special"), wanted)
            .otherwise(f.col("asked_ms"))
            .alias("asked_wanted_ms"),
            due_code(told, timestamp_ms, policy, f.col("asked_ms"), said.has(HOP_FROM)).alias(
                "due_code"
            ),
        )
        .select("*", _code(said, policy).alias("code"))
    )


def _code(said: Said, policy: Column) -> Column:
    """What is wrong with the record: the first that is found, in the order of its reading."""
    kind, partition = f.col("asked_kind"), f.col("asked_partition")
    return first_of(
        f.col("alias_code"),
        f.when(
            f.col("is_special"),
            first_of(f.col("opening_code"), transaction_code(said, f.col("hop"))),
        ),
        f.when(
            kind.isin(RECORD, PREPARE),
            first_of(
                f.col("retry_code"),
                target_code(f.col("topic"), f.col("is_derived"), policy),
                f.col("due_code"),
                partition_code(said.has(PARTITION), partition),
                f.when(kind == PREPARE, check_code(said, policy)),
            ),
        ),
    )


def _answered(timed: DataFrame) -> DataFrame:
    """The columns of ASKED; what a kind of record does not have is null."""
    said, policy, kind = Said(f.col("said")), f.col("policy"), f.col("kind")
    is_entry, is_refused = kind.isin(RECORD, PREPARE), kind == REFUSED
    ident = f.when(kind == CANCELS, said.raw(CANCEL)).otherwise(said.raw(ID))
    fires = fires_ms(f.col("asked_wanted_ms"), f.col("timestamp_ms"), policy)
    hop_attempt = f.when(f.col("is_special"), said.text(HOP_ATTEMPT).try_cast("int"))
    chooses = f.col("asked_key").isNotNull() & f.col("asked_partition").isNull()
    shown = f.coalesce(f.col("raw_letter_hash"), f.col("letter_hash"))
    return timed.withColumn("kind", _kind(policy)).select(
        *PLACE,
        "kind",
        f.when(is_refused, f.col("code")).alias("code"),
        f.when(~is_refused, ident).alias("ident"),
        f.when(is_entry, f.col("topic")).alias("target"),
        f.when(is_entry, f.col("asked_partition")).alias("target_partition"),
        f.when(is_entry, f.col("asked_key")).alias("target_key"),
        f.when(is_entry & chooses, key_number(f.col("asked_key"))).alias("key_number"),
        f.when(is_entry, f.col("asked_ms")).alias("due_ms"),
        f.when(is_entry, f.col("asked_wanted_ms")).alias("wanted_ms"),
        f.when(is_entry, fires).alias("fires_ms"),
        f.when(kind != PREPARE, f.col("hop")).alias("hop_from"),
        said.text(FIRST_ORIGIN).alias("first_origin"),
        hop_attempt.alias("hop_attempt"),
        f.when(kind == PREPARE, expires_ms(said, f.col("timestamp_ms"), policy)).alias(
            "expires_ms"
        ),
        f.when(is_entry, bytes_hash(f.col("asked_key"))).alias("key_hash"),
        "value_hash",
        "headers_hash",
        f.when(is_refused, shown).otherwise(f.col("letter_hash")).alias("letter_hash"),
    )


def _kind(policy: Column) -> Column:
    """Null where no policy is known that judges the record."""
    return f.when(
        policy.isNotNull(),
        f.when(f.col("code").isNotNull(), f.lit(REFUSED)).otherwise(f.col("asked_kind")),
    )
