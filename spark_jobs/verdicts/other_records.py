"""What other records tell of a record: by its id (`id_generations`), and since it hopped (`hops`).

That takes several sorts and joins, so it is found on the few columns that it depends on.
"""

from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.evidence.record_histories import PLACE
from spark_jobs.runtime.materialised import Materialise
from spark_jobs.verdicts.hops import HOPS, IS_HOP, SAME, with_hops, without_hops
from spark_jobs.verdicts.id_generations import GENERATION, with_generations, without_generations
from spark_jobs.verdicts.rules.must_have_ended import MUST_HAVE_ENDED
from spark_jobs.verdicts.rules.unseen_ends import IS_ENDLESS, unseen_outcome

GOES_ON: Final = f"({IS_HOP} OR ({IS_ENDLESS} AND outcomes_unseen IS NOT NULL))"
"""SQL: whether a successor tells what became of it, or may: its outcome may lie unseen."""
NEEDS_OTHERS: Final = f"""
coalesce(offset IS NOT NULL AND (request.ident IS NOT NULL OR {GOES_ON}
  OR outcome.end IN ('cancelled', 'replaced') OR request.known_to_others
  OR request.kind NOT IN ('record', 'refused')), false)
"""
"""SQL: whether other records tell what may become of this one: by its id, since it hopped, was
moved or recalled."""
TOLD: Final = (*GENERATION, "must_have_ended", *HOPS)
_OF_A_REQUEST: Final = (
    *("kind", "ident", "timestamp_ms", "wanted_ms", "fires_ms", "expires_ms"),
    *(
        "hop_from",
        "first_origin",
        "first_offset",
        "moved_due_ms",
        "recalled",
        "hop_attempt",
        *SAME.values(),
        "known_from",
        "known_first_ms",
    ),
)
_SEEN: Final = {
    "request": f"struct({', '.join(f'request.{name}' for name in _OF_A_REQUEST)})",
    "outcome": "struct(outcome.end, outcome.detail, outcome.next_offset, outcome.at_ms)",
    "delivery": "struct(delivery.at_ms)",
    **{name: name for name in ("deliveries", "outcomes")},
    "is_seen": f"deliveries > 0 OR outcomes > 0"
    f" OR coalesce({unseen_outcome('offset')}.until_ms < request.timestamp_ms, true)",
}
"""SQL of what is looked at of a history. is_seen: its outcome, or it would be if there were one."""
_AROUND: Final = (
    *("known_from", "next_offset", "watermark_ms", "cursor", "at_ms", "ingress_topic"),
    "IF(outcomes_unseen IS NULL, NULL, true) AS outcomes_unseen",
)
"""SQL of the same of partitions and circumstances."""


def told_by_nobody(histories: DataFrame) -> DataFrame:
    """The histories, beside their partitions and the circumstances, with the columns TOLD as they
    are where no other record tells anything."""
    alone = without_hops(without_generations(histories))
    return alone.selectExpr("*", f"{MUST_HAVE_ENDED} AS must_have_ended")


def told_by_others(
    histories: DataFrame,
    purges: DataFrame | None,
    materialise: Materialise,
    *,
    has_recalls: bool,
) -> DataFrame:
    """PLACE and TOLD of each of the histories, all of which have a place. They stand beside their
    partitions and the circumstances. `purges`: those among them, as `purges_in` finds them."""
    seen = histories.selectExpr(
        *PLACE, *[f"{sql} AS {name}" for name, sql in _SEEN.items()], *_AROUND
    )
    generations = with_generations(seen, purges, has_recalls=has_recalls).selectExpr(
        "*", f"{MUST_HAVE_ENDED} AS must_have_ended"
    )
    known = materialise(generations.selectExpr("*", f"{GOES_ON} AS goes_on"))
    hops, others = with_hops(known.filter("goes_on")), without_hops(known.filter("NOT goes_on"))
    return others.unionByName(hops).select(*PLACE, *TOLD)
