"""One verdict for each record, by its history and the rules, and a sentence where it is needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.circumstances.circumstances import Circumstances
from spark_jobs.evidence.moves import IS_MOVE, WAS_MOVED
from spark_jobs.evidence.record_histories import PLACE
from spark_jobs.runtime.frames import Schema
from spark_jobs.runtime.materialised import Materialise
from spark_jobs.verdicts.carry_over import (
    GETS_VERDICT,
    HAS_ENDS_AHEAD,
    IS_LEFT_OPEN,
    IS_NEEDED,
    NEEDED_FROM,
    carried,
)
from spark_jobs.verdicts.check_rules import ASKED_FOR, ReadCheckBacks, wrong_checks
from spark_jobs.verdicts.delivery_order import out_of_order
from spark_jobs.verdicts.doubts import DOUBT, HAS_FIRED, SIGHT, SIGHTED, amended, contradicted
from spark_jobs.verdicts.hops import IS_HOP
from spark_jobs.verdicts.ignored_purges import fired_all_the_same
from spark_jobs.verdicts.other_records import NEEDS_OTHERS, told_by_nobody, told_by_others
from spark_jobs.verdicts.purges import WAITS_FROM, purges_in
from spark_jobs.verdicts.recalls import NEEDS_PROOF, without_unproven
from spark_jobs.verdicts.rules.delivery_rules import DELIVERY_RULES
from spark_jobs.verdicts.rules.general_rules import COUNT_RULES, ENDLESS_RULES, KNOWN_RULES
from spark_jobs.verdicts.rules.lateness_rules import IS_LATE, LATENESS_MS, OVERDUE_MS
from spark_jobs.verdicts.rules.outcome_rules import OUTCOME_RULES
from spark_jobs.verdicts.rules.rule import names, ruling
from spark_jobs.verdicts.rules.unseen_ends import with_unseen_ends
from spark_jobs.verdicts.verdict_names import ARRIVED, NOT_DONE, VIOLATIONS

RULES: Final = (*KNOWN_RULES, *COUNT_RULES, *ENDLESS_RULES, *DELIVERY_RULES, *OUTCOME_RULES)
"""The first that holds is the verdict."""
RULING: Final = ruling(RULES)
VERDICTS: Final[Schema] = {
    "partition": "int",
    "offset": "bigint",
    "verdict": "string",
    "is_violation": "boolean",
    "detail": "string",
    "kind": "string",
    "id": "string",
    "target": "string",
    "due_ms": "bigint",
    "timestamp_ms": "bigint",
    "delivered_ms": "bigint",
    "lateness_ms": "bigint",
    "overdue_ms": "bigint",
    "ended_ms": "bigint",
    "is_late": "boolean",
    "is_attested": "boolean",
    "at_topic": "string",
    "at_partition": "int",
    "at_offset": "bigint",
    "next_offset": "bigint",
    "ended_by": "bigint",
}
"""What became of each ingress record, and what names one that never was (docs/audit.md)."""
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
    "partition": "partition",
    "offset": "offset",
    "verdict": "ruling.verdict",
    "is_violation": f"ruling.verdict IN {names(VIOLATIONS)}",
    "detail": "ruling.detail",
    "kind": "request.kind",
    "id": _ID,
    "target": "coalesce(request.target, delivery.topic)",
    "due_ms": "request.due_ms",
    "timestamp_ms": "request.timestamp_ms",
    "delivered_ms": "delivery.at_ms",
    "lateness_ms": LATENESS_MS,
    "overdue_ms": f"IF(ruling.verdict IN {names(NOT_DONE)}, {OVERDUE_MS}, NULL)",
    "ended_ms": f"{_END}.at_ms",
    "is_late": f"ruling.verdict IN {names((*ARRIVED, *NOT_DONE))} AND {IS_LATE}",
    "is_attested": f"{_END}.is_attested",
    "at_topic": f"{_END}.topic",
    "at_partition": f"{_END}.at_partition",
    "at_offset": f"{_END}.at_offset",
    "next_offset": "coalesce(successor, outcome.next_offset)",
    "ended_by": _ENDED_BY,
}
_FIELDS: Final = ", ".join(
    f"'{name}', CAST({_COLUMNS[name]} AS {kind})" for name, kind in VERDICTS.items()
)
VERDICT: Final = f"IF({GETS_VERDICT}, named_struct({_FIELDS}), NULL)"
"""SQL of a struct of VERDICTS; null where this audit gives none."""
_IS_RECALL: Final = "request.kind = 'recall'"
_MISSED: Final = f"({_IS_RECALL} OR {IS_MOVE}) AND outcome.end = 'missed'"
_RECALLED_OR_MISSED: Final = f"({_MISSED}) OR {_IS_RECALL}"
"""What may name a record of which nothing else tells: where outcomes may be unseen, a recall may
have ended it."""
_NAMED: Final = "coalesce(request.recalled, request.hop_from)"
KNOWS_ALL: Final = "NOT settled_only AND max(known_from) OVER () = 0 AS knows_all"
"""SQL: whether all of the ingress is known: without end, some topics are seen further than it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """verdicts: VERDICTS, a row for each record that gets one. carried: the histories that an audit
    that continues this one has to know, as `carry_over.carried` has them. skipped: the partition of
    each ingress record that gets no verdict."""

    verdicts: DataFrame
    carried: DataFrame
    skipped: DataFrame


def evaluate(
    histories: DataFrame,
    partitions: DataFrame,
    circumstances: Circumstances,
    materialise: Materialise,
    read_check_backs: ReadCheckBacks | None = None,
) -> Evaluation:
    """Give verdicts by the histories; `partitions` (PARTITION_STATE) has each audited partition.
    Without `read_check_backs` these are not judged.

    Records outside the audited ranges say what becomes of the others and get no verdict. Most
    records are judged as they are read; those that depend on others afterwards.
    """
    spark = histories.sparkSession
    known = partitions.crossJoin(circumstances.frame(spark)).selectExpr("*", KNOWS_ALL)
    state = f.broadcast(known)
    targets = f.broadcast(circumstances.targets(spark))
    first = materialise(_evaluated_alone(histories, state, targets))
    naming = _RECALLED_OR_MISSED if circumstances.has_unseen_outcomes else _MISSED
    alone, others, has_recalls = _apart(first, histories.columns, naming, materialise)
    purges = purges_in(others)
    placed = _beside_state(others, state)
    told = told_by_others(placed, purges, materialise, has_recalls=has_recalls)
    second = materialise(_evaluated_together(others, told, state, targets))

    def of_both(name: str, *columns: str) -> DataFrame:
        chosen = (one.filter(f"{name} IS NOT NULL") for one in (alone, second))
        parts = (one.select(*(columns or (f"{name}.*",))) for one in chosen)
        return reduce(DataFrame.unionByName, parts)

    doubts = of_both("doubt", "verdict.partition", "verdict.offset", "doubt")
    asked_for = second.filter("half IS NOT NULL").select("partition", "offset", "half")
    kinds, topics = _to_look_at(doubts, asked_for)
    ignored = contradicted(doubts, kinds, first.select(*SIGHTED))
    overtaking = out_of_order(of_both("verdict", "verdict.*", "is_hop").filter("NOT is_hop"))
    asked = wrong_checks(asked_for, topics, read_check_backs) if read_check_backs else []
    purged = [] if purges is None else [_fired_after_purges(of_both, purges)]
    wrong = [*ignored, *asked, *purged, overtaking]
    verdicts = amended(of_both("verdict"), wrong, materialise)
    passed = (one.filter("is_read AND verdict IS NULL") for one in (alone, second))
    skipped = reduce(DataFrame.unionByName, (one.select("partition") for one in passed))
    return Evaluation(verdicts, of_both("history"), skipped)


class _Apart(NamedTuple):
    """What is judged: `alone`, by its own history; `others`, those histories that depend on one
    another. has_recalls: whether there are any among these."""

    alone: DataFrame
    others: DataFrame
    has_recalls: bool


def _apart(
    first: DataFrame, columns: Sequence[str], naming: str, materialise: Materialise
) -> _Apart:
    """Beside what needs others stands what waits alone, but is named by those of them for which
    `naming` (SQL) holds."""
    alone, asked = first.filter("NOT needs_others"), first.filter("needs_others")
    others = asked.select("history.*").select(*columns)
    wanted = (_IS_RECALL, naming, NEEDS_PROOF)
    has = others.agg(*(f.bool_or(f.expr(one)) for one in wanted)).first() or (0, 0, 0)
    if has[2]:
        others = materialise(without_unproven(others, first))
    if not has[1]:
        return _Apart(alone, others, bool(has[0]))
    named = others.filter(naming).selectExpr("partition", f"{_NAMED} AS offset").distinct()
    open_still = alone.filter("history IS NOT NULL").select("history.*").select(*columns)
    waiting = materialise(open_still.join(named, [*PLACE], "left_semi"))
    rest = alone.join(waiting.select(*PLACE), [*PLACE], "left_anti")
    return _Apart(rest, others.unionByName(waiting), bool(has[0]))


def _fired_after_purges(of_both: Callable[..., DataFrame], purges: DataFrame) -> DataFrame:
    fired = of_both("verdict", "verdict.*", "waits_from", "has_fired").filter("has_fired")
    return fired_all_the_same(fired, purges)


def _to_look_at(doubts: DataFrame, asked_for: DataFrame) -> tuple[set[str], set[str]]:
    """What kinds of doubt there are, and which topics for check-backs."""
    kinds = doubts.selectExpr("doubt.about AS kind", "CAST(NULL AS string) AS topic")
    topics = asked_for.selectExpr("CAST(NULL AS string) AS kind", "half.topic AS topic")
    rows = kinds.unionByName(topics).distinct().collect()
    return {row.kind for row in rows if row.kind}, {row.topic for row in rows if row.topic}


def _evaluated_alone(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    """`needs_others`; where not, `verdict` (VERDICTS) and its `doubt`; `history` where it is needed
    again; SIGHTED."""
    known = told_by_nobody(_beside(histories, state, targets))
    ruled = _ruled(known.selectExpr("*", f"{NEEDS_OTHERS} AS needs_others"), "NOT needs_others")
    return ruled.selectExpr(
        "needs_others",
        "false AS is_hop",
        "offset AS waits_from",
        f"{HAS_FIRED} AS has_fired",
        "request IS NOT NULL AS is_read",
        *[f"CAST({SIGHT[name]} AS {kind}) AS {name}" for name, kind in SIGHTED.items()],
        f"IF(NOT needs_others, {VERDICT}, NULL) AS verdict",
        f"IF(NOT needs_others AND {GETS_VERDICT}, {DOUBT}, NULL) AS doubt",
        f"IF(needs_others OR {IS_LEFT_OPEN} OR {HAS_ENDS_AHEAD},"
        f" {carried(IS_LEFT_OPEN)}, NULL) AS history",
    )


def _evaluated_together(
    histories: DataFrame, told: DataFrame, state: DataFrame, targets: DataFrame
) -> DataFrame:
    """`verdict`, `doubt` and `history` as above, by what other records tell (TOLD), too."""
    ruled = _ruled(_beside(histories.join(told, [*PLACE], "left"), state, targets), "true")
    return ruled.selectExpr("*", f"{NEEDED_FROM} AS needed_from").selectExpr(
        f"{VERDICT} AS verdict",
        f"{IS_HOP} AS is_hop",
        f"{WAITS_FROM} AS waits_from",
        f"{HAS_FIRED} AS has_fired",
        f"{ASKED_FOR} AS half",
        "partition",
        "offset",
        "request IS NOT NULL AS is_read",
        f"IF({GETS_VERDICT}, {DOUBT}, NULL) AS doubt",
        f"IF({IS_NEEDED} OR {HAS_ENDS_AHEAD}, {carried(IS_NEEDED)}, NULL) AS history",
    )


def _beside(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    """Each history with the state of its partition, the circumstances, and what its target is."""
    placed = _beside_state(histories, state)
    return placed.join(targets, f.expr("request.target = target_topic"), "left")


def _beside_state(histories: DataFrame, state: DataFrame) -> DataFrame:
    return histories.join(state, "partition", "left")


def _ruled(histories: DataFrame, where: str) -> DataFrame:
    """With `ruling`: verdict and detail by the first rule that holds; null but `where` (SQL)."""
    return with_unseen_ends(histories).selectExpr("*", f"IF({where}, {RULING}, NULL) AS ruling")
