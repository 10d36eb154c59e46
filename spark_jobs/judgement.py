"""What each record's facts amount to: one verdict, and a sentence where something is wrong."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.deliveries import delivered_rules
from spark_jobs.hops import GOES_ON, is_on_the_way, with_hops, without_hops
from spark_jobs.ids import with_chapters, without_chapters
from spark_jobs.obligations import is_lost_to_retention, must_have_ended
from spark_jobs.outcomes import outcome_rules
from spark_jobs.rules import Circumstances, Rule, asked, said, text
from spark_jobs.schemas import VERDICTS, conformed

VIOLATIONS: Final = ("missing", "duplicated", "early", "altered", "orphaned", "contradicted")


def judged(facts: DataFrame, standings: DataFrame, seen: Circumstances) -> DataFrame:
    """VERDICTS of `facts`; `standings` (STANDINGS) has each audited partition.

    `facts` is read twice: persist it. What lies outside the audited ranges tells of the others and
    gets no verdict itself.
    """
    cases = _cases(facts).join(f.broadcast(standings), "partition", "left")
    audited = cases.filter(_is_audited())
    ruled = audited.withColumn("must_have_ended", must_have_ended(seen))
    return _verdicts(ruled.select("*", _found_once(_rules(seen))))


def _cases(facts: DataFrame) -> DataFrame:
    """Facts with what the log says of ids and hops; most records have neither."""
    has_more = (
        asked("ident").isNotNull() | is_on_the_way() | ~asked("kind").isin("record", "refused")
    )
    is_special = f.coalesce(has_more, f.lit(False))
    plain = without_hops(without_chapters(facts.filter(~is_special)))
    special = with_chapters(facts.filter(is_special))
    on_the_way = with_hops(special.filter(is_on_the_way()))
    others = without_hops(special.filter(~is_on_the_way()))
    return plain.unionByName(others).unionByName(on_the_way)


def _is_audited() -> Column:
    """Whether the record lies in the audited range, or does not exist: ends are read before the
    ingress, so that none may name what is not there yet."""
    is_within = (f.col("offset") >= f.col("start")) & (f.col("offset") < f.col("end"))
    return is_within | asked().isNull()


def _rules(seen: Circumstances) -> list[Rule]:
    """The first that holds is the verdict."""
    return [*_strangers(), *_how_often(), *_without_end(seen), *_ended(seen)]


def _strangers() -> list[Rule]:
    """Of what the ingress does not have, and of what goes on from nothing."""
    is_absent = asked().isNull()
    was_deleted = f.col("offset") < f.col("log_start")
    is_settled = f.col("offset") < f.col("next_offset")
    claims = asked("hop_from").isNotNull() & (asked("kind") == "record") & is_settled
    came_from = f.coalesce(f.col("came_from"), f.lit("nothing"))
    is_known = asked("hop_from") >= f.col("start")
    return [
        Rule("unverifiable", is_absent & was_deleted, f.lit("the ingress has deleted the record")),
        Rule(
            "orphaned",
            is_absent & f.col("partition").isNull(),
            f.lit("its timer-origin names no record"),
        ),
        Rule("orphaned", is_absent, f.lit("the ingress never held a committed record there")),
        Rule(
            "contradicted",
            claims & is_known & ~came_from.isin(*GOES_ON),
            text("it goes on from offset {}, which ended as {}", asked("hop_from"), came_from),
        ),
        Rule("pending", asked("kind").isNull() & ~is_settled, f.lit("the proxy has not read it")),
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


def _found_once(rules: list[Rule]) -> Column:
    """What the first rule that holds says.

    As the only element of an array that is taken apart: else the optimiser would work the rules out
    for each column made of them, and in each branch of the union of cases.
    """
    found = f.coalesce(*[f.when(rule.holds, rule.found()) for rule in rules])
    return f.explode(f.array(found)).alias("found")


def _verdicts(ruled: DataFrame) -> DataFrame:
    end = f.coalesce(f.col("delivery"), f.col("outcome"), f.col("letter"))
    delivered_ms = said("delivery", "at_ms")
    wanted_ms = f.greatest(asked("wanted_ms"), asked("timestamp_ms"))
    columns = {
        "partition": f.col("partition"),
        "offset": f.col("offset"),
        "verdict": f.col("found.verdict"),
        "is_violation": f.col("found.verdict").isin(*VIOLATIONS),
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
    return conformed(ruled.select([c.alias(name) for name, c in columns.items()]), VERDICTS)
