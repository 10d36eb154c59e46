"""Cross-checks: verdicts that hold only if other records do not contradict them."""

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.histories.ends import MISSED_ITS_PLACE, PLACE
from spark_jobs.requests.error_codes import DECIDED_AT_ITS_DUE
from spark_jobs.requests.parsing import RECALLS, TAKE_BACK
from spark_jobs.runtime.frames import Materialise, quoted
from spark_jobs.verdicts.generations import OWN_END_MS
from spark_jobs.verdicts.rules import TRANSACTION_MS, delivered_after, sentence
from spark_jobs.verdicts.verdict_names import ARRIVED, CONTRADICTED, DEAD_LETTERED

ORDER: Final = "order"
SIZE: Final = "size"
MISSED: Final = "missed"
HAS_FIRED: Final = f"""
(ruling.verdict IN {quoted(ARRIVED)}
  OR (ruling.verdict = '{DEAD_LETTERED}' AND letter.code IN {quoted(DECIDED_AT_ITS_DUE)}))
"""
"""SQL: whether a record was pending until its due, and was delivered or dead-lettered then."""
_FIRED_MS: Final = "coalesce(delivery.at_ms, letter.at_ms)"
CROSS_CHECK: Final = f"""
CASE WHEN {HAS_FIRED} AND next_opener.kind NOT IN {quoted(TAKE_BACK)}
    AND next_opener.offset < next_offset AND next_opener.timestamp_ms < {_FIRED_MS}
  THEN named_struct('about', '{ORDER}', 'after', next_opener.offset, 'at_ms', {_FIRED_MS},
    'wanted_ms', request.wanted_ms, 'topic', delivery.topic, 'bytes', CAST(NULL AS bigint))
  WHEN ruling.verdict = '{DEAD_LETTERED}' AND letter.code = 'too-large'
  THEN named_struct('about', '{SIZE}', 'after', CAST(NULL AS bigint), 'at_ms', letter.at_ms,
    'wanted_ms', request.wanted_ms, 'topic', request.target,
    'bytes', request.size_bytes + letter.size_bytes)
  WHEN ruling.verdict = 'missed'
    AND ((request.kind = '{RECALLS}' AND named IS NULL) OR {MISSED_ITS_PLACE})
  THEN named_struct('about', '{MISSED}', 'after', coalesce(request.recalled, request.hop_from),
    'at_ms', outcome.at_ms,
    'wanted_ms', NULL, 'topic', NULL, 'bytes', NULL) END
"""
"""SQL: the check against other records that a verdict needs, or null.
`order`: the next record with the id was written before this record fired. So the proxy may have
read the next record by then. `size`: the record was too large for its target, but the target may
have taken others of that size. `missed`: a recall or move says `missed`, but the record that it
names may have ended later.
"""
_KNOWN: Final = "IF(request IS NULL, NULL, {})"
SIGHT: Final = {
    "partition": "partition",
    "offset": "offset",
    "ended_ms": _KNOWN.format("least(delivery.at_ms, outcome.at_ms, letter.at_ms)"),
    "own_end_ms": _KNOWN.format(OWN_END_MS),
    "took_topic": _KNOWN.format("delivery.topic"),
    "took_bytes": _KNOWN.format("delivery.size_bytes"),
    "key_hash": "IF(request.kind IS NULL, NULL, coalesce(request.ingress_key_hash, 0))",
}
"""Facts of each record, for checks of other records; null if the ingress has no such record.
`own_end_ms`: when the record ended, if no other record ended it. `took_topic`, `took_bytes`: target
and size of its delivery. `key_hash`: the hash of its ingress key, 0 if there is no key, null
if its request is unknown.
"""
BLOCK: Final = 1024
SECOND_MS: Final = 1_000
_READ_AFTER: Final = sentence(
    "it {IF(topic IS NULL, 'became a dead letter', 'was delivered')} {at_ms - read_ms} ms after"
    " offset {after}, which replaces it, was read"
)
_MISSED_BEFORE: Final = sentence(
    "it says missed, but the record that it names, at offset {after},"
    " {IF(took_topic IS NULL, 'ended as dead-lettered or expired', 'was delivered')}"
    " {own_end_ms - at_ms} ms later"
)
_TOOK_MORE: Final = sentence(
    "dead-lettered for too-large with {bytes} bytes, but {topic} took {taken} bytes in the seconds"
    " before and after"
)


def contradicted(checks: DataFrame, kinds: Collection[str], sighted: DataFrame) -> list[DataFrame]:
    """Return partition and offset of verdicts that other records contradict, and `why_wrong`."""
    found = checks.select("partition", "offset", "cross_check.*")
    looks = {
        ORDER: (_ignored, _READ_AFTER),
        SIZE: (_taken, _TOOK_MORE),
        MISSED: (_missed, _MISSED_BEFORE),
    }
    return [
        look(found.filter(f.col("about") == kind), sighted).selectExpr(
            "partition", "offset", f"{why} AS why_wrong"
        )
        for kind, (look, why) in looks.items()
        if kind in kinds
    ]


def amended(verdicts: DataFrame, wrong: Sequence[DataFrame], materialise: Materialise) -> DataFrame:
    """Return the verdicts. A record in `wrong` gets a violation, if it has none."""
    found = reduce(DataFrame.unionByName, wrong)
    once = materialise(
        found.groupBy("partition", "offset").agg(f.min("why_wrong").alias("why_wrong"))
    )
    if once.isEmpty():
        return verdicts
    joined = verdicts.join(once, ["partition", "offset"], "left")
    is_wrong = "(why_wrong IS NOT NULL AND NOT is_violation)"
    changed = {
        "verdict": f"IF({is_wrong}, '{CONTRADICTED}', verdict)",
        "is_violation": f"is_violation OR {is_wrong}",
        "detail": f"IF({is_wrong}, why_wrong, detail)",
    }
    return joined.selectExpr(*[f"{changed.get(c, f'`{c}`')} AS `{c}`" for c in verdicts.columns])


def _ignored(checks: DataFrame, sighted: DataFrame) -> DataFrame:
    """Return records that fired after the proxy had read the next record with their id.
    The proxy had read the next record if this next record or a record behind it had ended.
    """
    ended = sighted.filter("ended_ms IS NOT NULL").selectExpr(
        "partition", "offset AS other", f"offset DIV {BLOCK} AS block", "ended_ms"
    )
    asked = checks.selectExpr("*", f"after DIV {BLOCK} AS block")
    near = asked.join(ended, ["partition", "block"]).filter("other >= after")
    blocks = ended.groupBy("partition", f.col("block").alias("other_block")).agg(
        f.min("ended_ms").alias("ended_ms")
    )
    far = asked.join(blocks, "partition").filter("other_block > block")
    read = near.select(*PLACE, "ended_ms").unionByName(far.select(*PLACE, "ended_ms"))
    earliest = read.groupBy(*PLACE).agg(f.min("ended_ms").alias("read_ms"))
    judged = checks.join(earliest, [*PLACE])
    return judged.filter(delivered_after("at_ms", "wanted_ms", "read_ms"))


def _missed(checks: DataFrame, sighted: DataFrame) -> DataFrame:
    ended = sighted.filter("own_end_ms IS NOT NULL").selectExpr(
        "partition", "offset AS after", "own_end_ms", "took_topic"
    )
    named = checks.join(ended, ["partition", "after"])
    return named.filter(f"own_end_ms > at_ms + {TRANSACTION_MS}")


def _taken(checks: DataFrame, sighted: DataFrame) -> DataFrame:
    second = f"DIV {SECOND_MS}"
    taken = (
        sighted.filter("took_topic IS NOT NULL")
        .groupBy(f.col("took_topic").alias("topic"), f.expr(f"ended_ms {second}").alias("second"))
        .agg(f.max("took_bytes").alias("taken"))
    )
    around = f"explode(array(at_ms {second} - 1, at_ms {second} + 1)) AS second"
    return (
        checks.selectExpr("*", around)
        .join(taken, ["topic", "second"])
        .filter("taken >= bytes")
        .groupBy("partition", "offset", "topic", "bytes")
        .agg(f.count("*").alias("seconds"), f.min("taken").alias("taken"))
        .filter("seconds = 2")
    )
