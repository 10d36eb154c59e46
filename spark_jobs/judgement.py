"""What each record's facts amount to: one verdict, and a sentence where something is wrong."""

from __future__ import annotations

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.deliveries import delivered_rules
from spark_jobs.hops import GOES_ON, is_on_the_way, with_hops, without_hops
from spark_jobs.ids import with_chapters, without_chapters
from spark_jobs.obligations import is_lost_to_retention, must_have_ended
from spark_jobs.outcomes import outcome_rules
from spark_jobs.rules import Circumstances, Rule, asked, said, text
from spark_jobs.schemas import VERDICTS

VIOLATIONS: Final = ("missing", "duplicated", "early", "altered", "orphaned", "contradicted")


def judged(facts: DataFrame, standings: DataFrame, seen: Circumstances) -> DataFrame:
    """VERDICTS of `facts`; `standings` (STANDINGS) has each audited partition.

    What lies outside the audited ranges tells of the others and gets no verdict itself. Keeps on
    disk what is read twice, until the session's cache is cleared.
    """
    positions = f.broadcast(standings)
    looked_at = _looked_at(facts, positions, seen).persist(StorageLevel.DISK_ONLY)
    plain = looked_at.filter(f.col("plain").isNotNull()).select("plain.*")
    special = looked_at.filter(f.col("special").isNotNull()).select("special.*")
    return plain.unionByName(_special_verdicts(special, positions, seen))


def _looked_at(facts: DataFrame, standings: DataFrame, seen: Circumstances) -> DataFrame:
    """`plain`: the VERDICTS of records that have nothing to do with others; `special`: the facts
    of all others. Most records are plain: they are judged as they are read."""
    has_more = (
        asked("ident").isNotNull() | is_on_the_way() | ~asked("kind").isin("record", "refused")
    )
    is_special = f.coalesce(has_more, f.lit(False))
    cases = without_hops(without_chapters(facts.join(standings, "partition", "left")))
    ruled = _ruled(cases.withColumn("is_special", is_special), seen, ~f.col("is_special"))
    looked_at = ruled.filter(f.col("is_special") | _is_audited())
    return looked_at.select(
        f.when(~f.col("is_special"), f.struct(*_verdict())).alias("plain"),
        f.when(f.col("is_special"), f.struct(*facts.columns)).alias("special"),
    )


def _special_verdicts(facts: DataFrame, standings: DataFrame, seen: Circumstances) -> DataFrame:
    """VERDICTS by what the log says of ids and hops, too."""
    special = with_chapters(facts)
    on_the_way = with_hops(special.filter(is_on_the_way()))
    cases = without_hops(special.filter(~is_on_the_way())).unionByName(on_the_way)
    audited = cases.join(standings, "partition", "left").filter(_is_audited())
    return _ruled(audited, seen, f.lit(True)).select(*_verdict())


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


def _ruled(cases: DataFrame, seen: Circumstances, where: Column) -> DataFrame:
    """With `found`: what the rules say, null where they are not asked."""
    ruled = cases.withColumn("must_have_ended", must_have_ended(seen))
    return ruled.select("*", _found_once(_rules(seen), where))


def _found_once(rules: list[Rule], where: Column) -> Column:
    """What the first rule that holds says."""
    found = f.coalesce(*[f.when(rule.holds, rule.found()) for rule in rules])
    return f.when(where, found).alias("found")


def _verdict() -> list[Column]:
    """The columns of VERDICTS."""
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
    return [columns[name].cast(kind).alias(name) for name, kind in VERDICTS.items()]
