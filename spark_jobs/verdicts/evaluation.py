"""The verdict of each record, from its history and the rules. A sentence explains it if needed."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.audit_scope import AuditScope
from spark_jobs.histories.ends import IS_MOVE, PLACE, WAS_MOVED
from spark_jobs.records.headers import CHECK, ID, TRANSACTION
from spark_jobs.runtime.frames import Materialise, Schema, quoted
from spark_jobs.verdicts.cross_checks import (
    CROSS_CHECK,
    HAS_FIRED,
    SIGHT,
    amended,
    contradicted,
)
from spark_jobs.verdicts.generations import (
    GENERATION,
    GETS_VERDICT,
    HAS_ENDS_AHEAD,
    IS_LEFT_OPEN,
    IS_NEEDED,
    NEEDED_FROM,
    carried,
    with_generations,
    without_generations,
)
from spark_jobs.verdicts.requests import (
    HOPS,
    IS_HOP,
    NEEDS_PROOF,
    PENDING_FROM,
    SAME,
    fired_all_the_same,
    purges_in,
    with_hops,
    without_hops,
    without_unproven,
)
from spark_jobs.verdicts.rules import (
    COUNT_RULES,
    DELIVERY_RULES,
    ENDLESS_RULES,
    IS_ENDLESS,
    IS_LATE,
    KNOWN_RULES,
    LATENESS_MS,
    MUST_HAVE_ENDED,
    OUTCOME_RULES,
    OVERDUE_MS,
    UNSEEN_STEPS,
    differences,
    in_steps,
    ruling,
    sentence,
    unseen_outcome,
)
from spark_jobs.verdicts.verdict_names import ARRIVED, NOT_DONE, VIOLATIONS

# Records of one ingress partition that have the same due and the same target partition are
# delivered in the order of writing (docs/guide.md#what-arrives). Rewritten records and half
# messages have no place in this order.

HAS_PLACE: Final = f"verdict IN {quoted(ARRIVED)} AND kind = 'record'"
_BEFORE: Final = """
OVER (PARTITION BY partition, due_ms, at_topic, at_partition ORDER BY offset
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""
_WHY: Final = sentence(
    "it was delivered before offset {before.offset}, which was written earlier with the same due"
)


def out_of_order(verdicts: DataFrame) -> DataFrame:
    """Return place and `why_wrong` of records that were delivered before a record written earlier.
    `verdicts`: VERDICTS of records that are no hops.
    """
    placed = verdicts.filter(HAS_PLACE).selectExpr(
        "partition",
        "offset",
        f"max(named_struct('at_offset', at_offset, 'offset', offset)) {_BEFORE} AS before",
        "at_offset",
    )
    wrong = placed.filter("before.at_offset > at_offset")
    return wrong.selectExpr("partition", "offset", f"{_WHY} AS why_wrong")


# A check-back has no origin, so it is found by topic and id (docs/guide.md#half-messages). If no
# half message with its id is known, the check-back may belong to another installation.

ReadCheckBacks: TypeAlias = Callable[[list[str]], DataFrame]
STAMPS: Final = f"{TRANSACTION},{ID},{CHECK}"
ASKED_FOR: Final = """
IF(request.kind = 'prepare' AND request.checks IS NOT NULL, struct(request.ident,
  request.checks.topic, request.checks.first_ms, request.checks.interval_ms, request.checks.most,
  request.timestamp_ms, knows_all, request.key_hash, request.value_hash, request.headers_hash),
  NULL)
"""
"""SQL: the check-backs that a half message requests.
`knows_all`: whether the audit knows all half messages that a check-back can be about.
"""
_OTHER: Final = differences(
    {
        "key": ("half.key_hash", "key_hash"),
        "value": ("half.value_hash", "value_hash"),
        "headers": ("half.headers_hash", "headers_hash"),
        "stamps": (f"'{STAMPS}'", "stamps"),
    }
)
_DUE_MS: Final = "(half.first_ms + (number - 1) * half.interval_ms)"
_WRONG: Final = f"""
CASE WHEN {_OTHER} != '' AND half.knows_all
    THEN {sentence(f"check {{number}} has a different {{{_OTHER}}}")}
  WHEN {_OTHER} != '' THEN ''
  WHEN NOT coalesce(number BETWEEN 1 AND half.most, false)
    THEN {sentence("check {number} came, but the limit is {half.most}")}
  WHEN at_ms < {_DUE_MS}
    THEN {sentence(f"check {{number}} came {{{_DUE_MS} - at_ms}} ms before its time")} END
"""
_TOO_MANY: Final = sentence("check {number} came {times} times instead of {halves}")


def wrong_checks(
    asked_for: DataFrame, topics: Collection[str], read: ReadCheckBacks
) -> list[DataFrame]:
    """Return place and `why_wrong` of half messages (ASKED_FOR) with a wrong check-back.
    If a check-back fits no half message with its id, the last half message of this id is returned.
    """
    if not topics:
        return []
    halves = asked_for.selectExpr(
        "partition", "offset", "half", "half.topic AS topic", "half.ident AS ident"
    )
    checks = read(sorted(topics)).withColumn("check_id", f.monotonically_increasing_id())
    there = halves.join(checks, ["topic", "ident"]).filter("half.timestamp_ms <= at_ms")
    candidates = there.selectExpr("*", "half.timestamp_ms AS timestamp_ms", f"{_WRONG} AS wrong")
    unsound = (
        candidates.groupBy("check_id")
        .agg(
            f.bool_and(f.expr("wrong IS NOT NULL")).alias("is_wrong"),
            f.max(f.struct("timestamp_ms", "partition", "offset", "wrong")).alias("at"),
        )
        .filter("is_wrong AND at.wrong != ''")
        .selectExpr("at.partition", "at.offset", "at.wrong AS why_wrong")
    )
    repeated = (
        candidates.filter("wrong IS NULL")
        .groupBy("topic", "ident", "number", "key_hash", "value_hash", "headers_hash")
        .agg(
            f.count_distinct("check_id").alias("times"),
            f.count_distinct("partition", "offset").alias("halves"),
            f.min(f.struct("partition", "offset")).alias("first"),
        )
        .filter("times > halves")
        .selectExpr("first.partition", "first.offset", f"{_TOO_MANY} AS why_wrong")
    )
    return [unsound, repeated]


# Facts about other records need several sorts and joins, so only the needed columns are read.

GOES_ON: Final = f"({IS_HOP} OR ({IS_ENDLESS} AND outcomes_unseen IS NOT NULL))"
"""SQL: whether a successor shows how the record ended, or may show it if outcomes are unseen."""
NEEDS_OTHERS: Final = f"""
coalesce(offset IS NOT NULL AND (request.ident IS NOT NULL OR {GOES_ON}
  OR outcome.end IN ('cancelled', 'replaced') OR request.known_to_others
  OR request.kind NOT IN ('record', 'refused')), false)
"""
"""SQL: whether other records affect this one: it has an id, hopped, or was moved or recalled."""
FROM_OTHERS: Final = (*GENERATION, "must_have_ended", *HOPS)
_OF_A_REQUEST: Final = (
    *("kind", "ident", "timestamp_ms", "wanted_ms", "fires_ms", "expires_ms", "hop_from"),
    *("first_origin", "first_offset", "moved_due_ms", "recalled", "hop_attempt"),
    *(*SAME.values(), "known_from", "known_first_ms"),
)
_SEEN: Final = {
    "request": f"struct({', '.join(f'request.{name}' for name in _OF_A_REQUEST)})",
    "outcome": "struct(outcome.end, outcome.detail, outcome.next_offset, outcome.at_ms)",
    "delivery": "struct(delivery.at_ms)",
    **{name: name for name in ("deliveries", "outcomes")},
    "is_seen": f"deliveries > 0 OR outcomes > 0"
    f" OR coalesce({unseen_outcome('offset')}.until_ms < request.timestamp_ms, true)",
}
_AROUND: Final = (
    *("known_from", "next_offset", "watermark_ms", "cursor", "at_ms", "ingress_topic"),
    "IF(outcomes_unseen IS NULL, NULL, true) AS outcomes_unseen",
)


def from_others(
    histories: DataFrame,
    purges: DataFrame | None,
    materialise: Materialise,
    *,
    has_recalls: bool,
) -> DataFrame:
    """Return PLACE and FROM_OTHERS of histories that have a place.
    The histories also have the columns of the partition's state and scope.
    """
    seen = histories.selectExpr(
        *PLACE, *[f"{sql} AS {name}" for name, sql in _SEEN.items()], *_AROUND
    )
    generations = with_generations(seen, purges, has_recalls=has_recalls).selectExpr(
        "*", f"{MUST_HAVE_ENDED} AS must_have_ended"
    )
    known = materialise(generations.selectExpr("*", f"{GOES_ON} AS goes_on"))
    hops, others = with_hops(known.filter("goes_on")), without_hops(known.filter("NOT goes_on"))
    return others.unionByName(hops).select(*PLACE, *FROM_OTHERS)


RULES: Final = (*KNOWN_RULES, *COUNT_RULES, *ENDLESS_RULES, *DELIVERY_RULES, *OUTCOME_RULES)
"""The first rule that holds gives the verdict."""
RULING: Final = ruling(RULES)
_END: Final = "coalesce(delivery, outcome, letter)"
_ID: Final = """
IF(is_valid_utf8(CAST(request.ident AS string)), CAST(request.ident AS string), hex(request.ident))
"""
_ENDED_BY: Final = f"""
CASE WHEN {WAS_MOVED} THEN outcome.next_offset
  WHEN outcome.end IN ('cancelled', 'replaced') THEN coalesce(overtaken_by, next_opener).offset
  WHEN request.kind = 'prepare' THEN decision.offset END
"""
_COLUMNS: Final = {
    "partition": ("int", "partition"),
    "offset": ("bigint", "offset"),
    "verdict": ("string", "ruling.verdict"),
    "is_violation": ("boolean", f"ruling.verdict IN {quoted(VIOLATIONS)}"),
    "detail": ("string", "ruling.detail"),
    "kind": ("string", "request.kind"),
    "id": ("string", _ID),
    "target": ("string", "coalesce(request.target, delivery.topic)"),
    "due_ms": ("bigint", "request.due_ms"),
    "timestamp_ms": ("bigint", "request.timestamp_ms"),
    "delivered_ms": ("bigint", "delivery.at_ms"),
    "lateness_ms": ("bigint", LATENESS_MS),
    "overdue_ms": ("bigint", f"IF(ruling.verdict IN {quoted(NOT_DONE)}, {OVERDUE_MS}, NULL)"),
    "ended_ms": ("bigint", f"{_END}.at_ms"),
    "is_late": ("boolean", f"ruling.verdict IN {quoted((*ARRIVED, *NOT_DONE))} AND {IS_LATE}"),
    "is_attested": ("boolean", f"{_END}.is_attested"),
    "at_topic": ("string", f"{_END}.topic"),
    "at_partition": ("int", f"{_END}.at_partition"),
    "at_offset": ("bigint", f"{_END}.at_offset"),
    "next_offset": ("bigint", "coalesce(successor, outcome.next_offset)"),
    "ended_by": ("bigint", _ENDED_BY),
}
VERDICTS: Final[Schema] = {name: kind for name, (kind, _) in _COLUMNS.items()}
"""The verdict of each ingress record, and of each end without a record (docs/audit.md)."""
_FIELDS: Final = ", ".join(
    f"'{name}', CAST({sql} AS {kind})" for name, (kind, sql) in _COLUMNS.items()
)
VERDICT: Final = f"IF({GETS_VERDICT}, named_struct({_FIELDS}), NULL)"
_JUDGED: Final = (
    *("request IS NOT NULL AS is_read", f"{HAS_FIRED} AS has_fired"),
    *(f"{IS_HOP} AS is_hop", f"{PENDING_FROM} AS pending_from"),
)
_IS_RECALL: Final = "request.kind = 'recall'"
_MISSED: Final = f"({_IS_RECALL} OR {IS_MOVE}) AND outcome.end = 'missed'"
NAMES_ANOTHER: Final = f"""
coalesce(({_MISSED}) OR ({_IS_RECALL} AND outcomes_unseen IS NOT NULL), false)
"""
"""SQL: whether a record must be judged together with the record that it names.
If outcomes may be unseen, any recall may have ended the named record.
"""
_NAMED: Final = "coalesce(request.recalled, request.hop_from)"
KNOWS_ALL: Final = """
NOT settled_only AND max(known_from) OVER (PARTITION BY scope) = 0 AS knows_all
"""
"""SQL: whether the whole ingress is known.
With `settled_only` it is never known, because the audit then reads other topics further.
"""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdicts, and the histories that the next audit needs."""

    verdicts: DataFrame
    """VERDICTS, a row for each judged record."""
    carried: DataFrame
    skipped: DataFrame
    """The partition of each ingress record without a verdict."""


class Scoped(NamedTuple):
    """Partitions (PARTITION_STATE) with their scope, and the known TARGETS."""

    partitions: DataFrame
    targets: DataFrame


def in_scope(partitions: DataFrame, scope: AuditScope, number: int = 0) -> Scoped:
    """Return the partitions within this scope."""
    spark = partitions.sparkSession
    beside = partitions.crossJoin(scope.frame(spark, number))
    return Scoped(beside, scope.targets(spark, number))


def evaluate(
    histories: DataFrame,
    scoped: Scoped,
    materialise: Materialise,
    read_check_backs: ReadCheckBacks | None = None,
) -> Evaluation:
    """Return the verdicts for the histories. `scoped` has each audited partition.
    Without `read_check_backs`, check-backs are not judged. Records outside the audited ranges may
    affect other records, but get no verdict.
    """
    state = f.broadcast(scoped.partitions.selectExpr("*", KNOWS_ALL))
    targets = f.broadcast(scoped.targets)
    first = materialise(_evaluated_alone(histories, state, targets))
    apart = _apart(first, histories.columns, materialise)
    others, purges = apart.others, purges_in(apart.others)
    known = from_others(
        others.join(state, "partition", "left"), purges, materialise, has_recalls=apart.has_recalls
    )
    second = materialise(_evaluated_together(others, known, state, targets))

    def of_both(name: str, *columns: str) -> DataFrame:
        chosen = (one.filter(f"{name} IS NOT NULL") for one in (apart.alone, second))
        parts = (one.select(*(columns or (f"{name}.*",))) for one in chosen)
        return reduce(DataFrame.unionByName, parts)

    checks = of_both("cross_check", "verdict.partition", "verdict.offset", "cross_check")
    asked_for = second.filter("half IS NOT NULL").select("partition", "offset", "half")
    kinds, topics = _to_look_at(checks, asked_for)
    wrong = contradicted(checks, kinds, first.select(*SIGHT))
    if read_check_backs:
        wrong += wrong_checks(asked_for, topics, read_check_backs)
    if purges is not None:
        fired = of_both("verdict", "verdict.*", "pending_from", "has_fired").filter("has_fired")
        wrong.append(fired_all_the_same(fired, purges))
    wrong.append(out_of_order(of_both("verdict", "verdict.*", "is_hop").filter("NOT is_hop")))
    verdicts = amended(of_both("verdict"), wrong, materialise)
    passed = (one.filter("is_read AND verdict IS NULL") for one in (apart.alone, second))
    skipped = reduce(DataFrame.unionByName, (one.select("partition") for one in passed))
    return Evaluation(verdicts, of_both("history"), skipped)


class _Apart(NamedTuple):
    alone: DataFrame
    others: DataFrame
    has_recalls: bool


def _apart(first: DataFrame, columns: Sequence[str], materialise: Materialise) -> _Apart:
    """Separate the records whose verdicts need other records.
    Open records that these records name go with them.
    """
    alone, asked = first.filter("NOT needs_others"), first.filter("needs_others")
    naming = "names_another"
    others = asked.select("history.*", naming).select(*columns, naming)
    wanted = (_IS_RECALL, naming, NEEDS_PROOF)
    has = others.agg(*(f.bool_or(f.expr(one)) for one in wanted)).first() or (0, 0, 0)
    if has[2]:
        others = materialise(without_unproven(others, first))
    if not has[1]:
        return _Apart(alone, others.drop(naming), bool(has[0]))
    named = others.filter(naming).selectExpr("partition", f"{_NAMED} AS offset").distinct()
    open_still = alone.filter("history IS NOT NULL").select("history.*").select(*columns)
    waiting = materialise(open_still.join(named, [*PLACE], "left_semi"))
    rest = alone.join(waiting.select(*PLACE), [*PLACE], "left_anti")
    return _Apart(rest, others.drop(naming).unionByName(waiting), bool(has[0]))


def _to_look_at(checks: DataFrame, asked_for: DataFrame) -> tuple[set[str], set[str]]:
    kinds = checks.selectExpr("cross_check.about AS kind", "CAST(NULL AS string) AS topic")
    topics = asked_for.selectExpr("CAST(NULL AS string) AS kind", "half.topic AS topic")
    rows = kinds.unionByName(topics).distinct().collect()
    return {row.kind for row in rows if row.kind}, {row.topic for row in rows if row.topic}


def _evaluated_alone(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    """Return `needs_others`, `history`, SIGHT; and the verdict, unless it needs other records."""
    known = without_hops(without_generations(_beside(histories, state, targets)))
    known = known.selectExpr("*", f"{MUST_HAVE_ENDED} AS must_have_ended")
    ruled = _ruled(known.selectExpr("*", f"{NEEDS_OTHERS} AS needs_others"), "NOT needs_others")
    return ruled.selectExpr(
        *_JUDGED,
        "needs_others",
        f"{NAMES_ANOTHER} AS names_another",
        *[f"{sql} AS {name}" for name, sql in SIGHT.items()],
        f"IF(NOT needs_others, {VERDICT}, NULL) AS verdict",
        f"IF(NOT needs_others AND {GETS_VERDICT}, {CROSS_CHECK}, NULL) AS cross_check",
        f"IF(needs_others OR {IS_LEFT_OPEN} OR {HAS_ENDS_AHEAD},"
        f" {carried(IS_LEFT_OPEN)}, NULL) AS history",
    )


def _evaluated_together(
    histories: DataFrame, known: DataFrame, state: DataFrame, targets: DataFrame
) -> DataFrame:
    ruled = _ruled(_beside(histories.join(known, [*PLACE], "left"), state, targets), "true")
    return ruled.selectExpr("*", f"{NEEDED_FROM} AS needed_from").selectExpr(
        *_JUDGED,
        *PLACE,
        f"{ASKED_FOR} AS half",
        f"{VERDICT} AS verdict",
        f"IF({GETS_VERDICT}, {CROSS_CHECK}, NULL) AS cross_check",
        f"IF({IS_NEEDED} OR {HAS_ENDS_AHEAD}, {carried(IS_NEEDED)}, NULL) AS history",
    )


def _beside(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    is_its = f.expr("request.target = target_topic AND scope = target_scope")
    return histories.join(state, "partition", "left").join(targets, is_its, "left")


def _ruled(histories: DataFrame, where: str) -> DataFrame:
    found = in_steps(histories, UNSEEN_STEPS)
    return found.selectExpr("*", f"IF({where}, {RULING}, NULL) AS ruling")
