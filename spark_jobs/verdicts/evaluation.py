"""What each record's facts amount to: one verdict, and a sentence where something is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.runtime.kept import kept
from spark_jobs.runtime.schemas import VERDICTS
from spark_jobs.verdicts.carry_over import (
    gets_verdict,
    has_early_ends,
    is_left_open,
    is_needed,
    open_case,
    with_oldest_needed,
)
from spark_jobs.verdicts.delivery_rules import delivered_rules
from spark_jobs.verdicts.hops import GOES_ON, is_on_the_way, with_hops, without_hops
from spark_jobs.verdicts.id_generations import with_chapters, without_chapters
from spark_jobs.verdicts.must_have_ended import is_lost_to_retention, must_have_ended
from spark_jobs.verdicts.outcome_rules import outcome_rules
from spark_jobs.verdicts.rules import Circumstances, Rule, asked, said, text
from spark_jobs.verdicts.verdict_names import BROKEN


@dataclass(frozen=True, slots=True)
class Judgement:
    """verdicts: VERDICTS, a row for each record that gets one. opened: OPEN_CASES, what an audit
    that goes on from this one has to know."""

    verdicts: DataFrame
    opened: DataFrame


def judged(facts: DataFrame, standings: DataFrame, seen: Circumstances) -> Judgement:
    """Judge `facts`; `standings` (STANDINGS) has each audited partition.

    What lies outside the audited ranges tells of the others and gets no verdict itself. Keeps on
    disk what is read more than once, until the session's cache is cleared.
    """
    positions, ruling = f.broadcast(standings), _ruling(seen)
    looked_at = kept(_looked_at(facts, positions, ruling))
    special = looked_at.filter("is_special").select("case.*").select(*facts.columns)
    ruled = kept(_special_cases(special, positions, ruling))
    plain = looked_at.filter(~f.col("is_special"))
    return Judgement(_given(plain).unionByName(_given(ruled)), _opened(plain, ruled))


class _Ruling(NamedTuple):
    """Expressions over a case. found: verdict and detail. given: VERDICTS, if any are given."""

    must_have_ended: Column
    found: Column
    given: Column


def _ruling(seen: Circumstances) -> _Ruling:
    """Made once for all cases: that takes seconds, most of a small audit's time."""
    found = f.coalesce(*[f.when(rule.holds, rule.found()) for rule in _rules(seen)])
    given = f.when(gets_verdict(), f.struct(*_verdict()))
    return _Ruling(must_have_ended(seen), found, given)


def _given(cases: DataFrame) -> DataFrame:
    return cases.filter(f.col("given").isNotNull()).select("given.*")


def _opened(*cases: DataFrame) -> DataFrame:
    found = [one.filter(f.col("case").isNotNull()).select("case.*") for one in cases]
    return reduce(DataFrame.unionByName, found)


def _looked_at(facts: DataFrame, standings: DataFrame, ruling: _Ruling) -> DataFrame:
    """`is_special`: it has to do with other records. All others are judged as they are read:
    `given` is their VERDICTS. `case`: what is needed again, OPEN_CASES."""
    has_more = (
        asked("ident").isNotNull() | is_on_the_way() | ~asked("kind").isin("record", "refused")
    )
    is_special = f.coalesce(has_more, f.lit(False))
    cases = without_hops(without_chapters(facts.join(standings, "partition", "left")))
    known = cases.withColumn("is_special", is_special)
    is_plain = ~f.col("is_special")
    ruled = _ruled(known, ruling.must_have_ended, f.when(is_plain, ruling.found))
    stays = f.col("is_special") | is_left_open() | has_early_ends()
    return ruled.select(
        "is_special",
        f.when(is_plain, ruling.given).alias("given"),
        f.when(stays, open_case(is_left_open())).alias("case"),
    )


def _special_cases(facts: DataFrame, standings: DataFrame, ruling: _Ruling) -> DataFrame:
    """`given` and `case` as above, by what the log says of ids and hops, too."""
    special = with_chapters(facts)
    on_the_way = with_hops(special.filter(is_on_the_way()))
    cases = without_hops(special.filter(~is_on_the_way())).unionByName(on_the_way)
    placed = cases.join(standings, "partition", "left")
    ruled = with_oldest_needed(_ruled(placed, ruling.must_have_ended, ruling.found))
    return ruled.select(
        ruling.given.alias("given"),
        f.when(is_needed() | has_early_ends(), open_case(is_needed())).alias("case"),
    )


def _rules(seen: Circumstances) -> list[Rule]:
    """The first that holds is the verdict."""
    unsettled = Rule("pending", ~f.col("must_have_ended"), f.lit(None))
    settled = [unsettled] if seen.settled_only else []
    return [*_strangers(seen), *settled, *_how_often(), *_without_end(seen), *_ended(seen)]


def _strangers(seen: Circumstances) -> list[Rule]:
    """Of what the ingress does not have, and of what goes on from nothing."""
    is_absent = asked().isNull()
    was_deleted = f.col("offset") < f.col("read_from")
    is_settled = f.col("offset") < f.col("next_offset")
    claims = asked("hop_from").isNotNull() & (asked("kind") == "record") & is_settled
    came_from = f.coalesce(f.col("came_from"), f.lit("nothing"))
    is_known = asked("hop_from") >= f.col("read_from")
    outcomes_gone_ms = f.lit(seen.gone_before_ms.get(seen.outcomes)).cast("bigint")
    may_be_gone = f.col("came_from").isNull() & (outcomes_gone_ms >= asked("timestamp_ms"))
    return [
        Rule("unverifiable", is_absent & was_deleted, f.lit("the ingress has deleted the record")),
        Rule(
            "orphaned",
            is_absent & f.col("partition").isNull(),
            f.lit("its timer-origin names no record"),
        ),
        Rule(
            "duplicated",
            is_absent & (f.col("offset") < f.col("closed_to")),
            f.lit("an earlier audit saw how it ended; this is one end more"),
        ),
        Rule("orphaned", is_absent, f.lit("the ingress never held a committed record there")),
        Rule("pending", ~is_settled, f.lit("the proxy has not read it")),
        Rule(
            "unverifiable",
            claims & is_known & may_be_gone,
            text("the outcome of offset {}, from which it goes on, was deleted", asked("hop_from")),
        ),
        Rule(
            "contradicted",
            claims & is_known & ~came_from.isin(*GOES_ON),
            text("it goes on from offset {}, which ended as {}", asked("hop_from"), came_from),
        ),
        Rule(
            "unverifiable",
            asked("kind").isNull(),
            f.lit("the settings that judged it are not known any more"),
        ),
    ]


def _how_often() -> list[Rule]:
    deliveries, outcomes = f.col("deliveries"), f.col("outcomes")
    is_twofold = said("outcome", "end") != f.col("last_outcome")
    return [
        Rule(
            "contradicted",
            (deliveries > 0) & (outcomes > 0),
            text("it was delivered, and its outcome is {}", said("outcome", "end")),
        ),
        Rule("duplicated", deliveries > 1, text("it was delivered {} times", deliveries)),
        Rule(
            "contradicted",
            (outcomes > 1) & is_twofold,
            text("its outcomes are {} and {}", said("outcome", "end"), f.col("last_outcome")),
        ),
        Rule("duplicated", outcomes > 1, text("it has {} outcomes", outcomes)),
    ]


def _without_end(seen: Circumstances) -> list[Rule]:
    has_none = (f.col("deliveries") == 0) & (f.col("outcomes") == 0)
    must = f.col("must_have_ended")
    return [
        Rule(
            "contradicted",
            has_none & must & (f.col("letters") > 0),
            f.lit("there is a dead letter of it, and no outcome"),
        ),
        Rule(
            "unverifiable",
            has_none & must & is_lost_to_retention(seen),
            f.lit("it should have ended; the topics no longer hold all that was written then"),
        ),
        Rule(
            "missing",
            has_none & must,
            f.lit("the committed offsets say that it has ended; no topic shows how"),
        ),
        Rule("pending", has_none, f.lit(None)),
    ]


def _ended(seen: Circumstances) -> list[Rule]:
    return [*delivered_rules(seen), *outcome_rules(seen)]


def _ruled(cases: DataFrame, must_have_ended: Column, found: Column) -> DataFrame:
    """With `found`: what the first rule that holds says; null where they are not asked."""
    return cases.withColumn("must_have_ended", must_have_ended).withColumn("found", found)


def _verdict() -> list[Column]:
    """The columns of VERDICTS."""
    end = f.coalesce(f.col("delivery"), f.col("outcome"), f.col("letter"))
    delivered_ms = said("delivery", "at_ms")
    wanted_ms = f.greatest(asked("wanted_ms"), asked("timestamp_ms"))
    columns = {
        "partition": f.col("partition"),
        "offset": f.col("offset"),
        "verdict": f.col("found.verdict"),
        "is_violation": f.col("found.verdict").isin(*BROKEN),
        "detail": f.col("found.detail"),
        "kind": asked("kind"),
        "target": f.coalesce(asked("target"), said("delivery", "topic")),
        "due_ms": asked("due_ms"),
        "timestamp_ms": asked("timestamp_ms"),
        "delivered_ms": delivered_ms,
        "lateness_ms": delivered_ms - wanted_ms,
        "at_topic": end["topic"],
        "at_partition": end["at_partition"],
        "at_offset": end["at_offset"],
        "next_offset": f.coalesce(f.col("successor"), said("outcome", "next_offset")),
    }
    return [columns[name].cast(kind).alias(name) for name, kind in VERDICTS.items()]
