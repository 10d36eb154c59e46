"""One verdict for each record, by its history and the rules, and a sentence where it is needed."""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.circumstances import Circumstances
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
from spark_jobs.verdicts.delivery_rules import DELIVERY_RULES
from spark_jobs.verdicts.general_rules import COUNT_RULES, ENDLESS_RULES, KNOWN_RULES
from spark_jobs.verdicts.hops import IS_HOP, with_hops, without_hops
from spark_jobs.verdicts.id_generations import with_generations, without_generations
from spark_jobs.verdicts.must_have_ended import MUST_HAVE_ENDED
from spark_jobs.verdicts.outcome_rules import OUTCOME_RULES
from spark_jobs.verdicts.rules import names, ruling
from spark_jobs.verdicts.verdict_names import VIOLATIONS

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
    "target": "string",
    "due_ms": "bigint",
    "timestamp_ms": "bigint",
    "delivered_ms": "bigint",
    "lateness_ms": "bigint",
    "at_topic": "string",
    "at_partition": "int",
    "at_offset": "bigint",
    "next_offset": "bigint",
}
"""What became of each ingress record, and what names one that never was (docs/audit.md)."""
_END: Final = "coalesce(delivery, outcome, letter)"
_COLUMNS: Final = {
    "partition": "partition",
    "offset": "offset",
    "verdict": "ruling.verdict",
    "is_violation": f"ruling.verdict IN {names(VIOLATIONS)}",
    "detail": "ruling.detail",
    "kind": "request.kind",
    "target": "coalesce(request.target, delivery.topic)",
    "due_ms": "request.due_ms",
    "timestamp_ms": "request.timestamp_ms",
    "delivered_ms": "delivery.at_ms",
    "lateness_ms": "delivery.at_ms - greatest(request.wanted_ms, request.timestamp_ms)",
    "at_topic": f"{_END}.topic",
    "at_partition": f"{_END}.at_partition",
    "at_offset": f"{_END}.at_offset",
    "next_offset": "coalesce(successor, outcome.next_offset)",
}
_FIELDS: Final = ", ".join(
    f"'{name}', CAST({_COLUMNS[name]} AS {kind})" for name, kind in VERDICTS.items()
)
VERDICT: Final = f"IF({GETS_VERDICT}, named_struct({_FIELDS}), NULL)"
"""SQL of a struct of VERDICTS; null where this audit gives none."""
NEEDS_OTHERS: Final = f"""
coalesce(request.ident IS NOT NULL OR {IS_HOP} OR request.kind NOT IN ('record', 'refused'), false)
"""
"""SQL: whether other records tell what may become of this one: by its id, or since it hopped."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """verdicts: VERDICTS, a row for each record that gets one. carried: the histories that an audit
    that continues this one has to know, as `carry_over.carried` has them."""

    verdicts: DataFrame
    carried: DataFrame


def evaluate(
    histories: DataFrame,
    partitions: DataFrame,
    circumstances: Circumstances,
    materialise: Materialise,
) -> Evaluation:
    """Give verdicts by the histories; `partitions` (PARTITION_STATE) has each audited partition.

    Records outside the audited ranges say what becomes of the others and get no verdict. Most
    records are judged as they are read; those that depend on others afterwards.
    """
    spark = histories.sparkSession
    state = f.broadcast(partitions.crossJoin(circumstances.frame(spark)))
    targets = f.broadcast(circumstances.targets(spark))
    first = materialise(_evaluated_alone(histories, state, targets))
    others = first.filter("needs_others").select("history.*").select(*histories.columns)
    second = materialise(_evaluated_together(others, state, targets))
    alone = first.filter("NOT needs_others")

    def of_both(name: str) -> DataFrame:
        parts = (one.filter(f"{name} IS NOT NULL").select(f"{name}.*") for one in (alone, second))
        return reduce(DataFrame.unionByName, parts)

    return Evaluation(of_both("verdict"), of_both("history"))


def _evaluated_alone(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    """`needs_others`; `verdict` (VERDICTS) where not; `history`, where it is needed again."""
    known = _beside(without_hops(without_generations(histories)), state, targets)
    ruled = _ruled(known.selectExpr("*", f"{NEEDS_OTHERS} AS needs_others"), "NOT needs_others")
    return ruled.selectExpr(
        "needs_others",
        f"IF(NOT needs_others, {VERDICT}, NULL) AS verdict",
        f"IF(needs_others OR {IS_LEFT_OPEN} OR {HAS_ENDS_AHEAD},"
        f" {carried(IS_LEFT_OPEN)}, NULL) AS history",
    )


def _evaluated_together(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    """`verdict` and `history` as above, by what the log says of ids and hops, too."""
    generations = with_generations(histories)
    hops = with_hops(generations.filter(IS_HOP))
    all_of_them = without_hops(generations.filter(f"NOT {IS_HOP}")).unionByName(hops)
    ruled = _ruled(_beside(all_of_them, state, targets), "true")
    return ruled.selectExpr("*", f"{NEEDED_FROM} AS needed_from").selectExpr(
        f"{VERDICT} AS verdict",
        f"IF({IS_NEEDED} OR {HAS_ENDS_AHEAD}, {carried(IS_NEEDED)}, NULL) AS history",
    )


def _beside(histories: DataFrame, state: DataFrame, targets: DataFrame) -> DataFrame:
    """Each history with the state of its partition, the circumstances, and what its target is."""
    placed = histories.join(state, "partition", "left")
    return placed.join(targets, f.expr("request.target = target_topic"), "left")


def _ruled(histories: DataFrame, where: str) -> DataFrame:
    """With `ruling`: verdict and detail by the first rule that holds; null but `where` (SQL)."""
    timed = histories.selectExpr("*", f"{MUST_HAVE_ENDED} AS must_have_ended")
    return timed.selectExpr("*", f"IF({where}, {RULING}, NULL) AS ruling")
