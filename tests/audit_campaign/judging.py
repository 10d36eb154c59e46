"""What the audit says of many runs side by side, as one audit, as a chain of two, and without end.

Everything but reading Kafka is the audit's own: parsing, histories, rules, what is carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.continuous import batches
from spark_jobs.continuous.horizon import Position
from spark_jobs.evidence.check_backs import check_backs
from spark_jobs.evidence.circumstances import Circumstances
from spark_jobs.evidence.ends import ENDS, all_of, dead_letters, deliveries, outcomes
from spark_jobs.evidence.inputs import new_requests
from spark_jobs.evidence.partition_state import PartitionState, partition_frame, partition_states
from spark_jobs.evidence.previous_audit import NOTHING_READ, REQUESTS, ReadSoFar, Span
from spark_jobs.evidence.record_histories import record_histories
from spark_jobs.runtime.frames import conformed, local_rows
from spark_jobs.runtime.materialised import Materialise, materialising
from spark_jobs.verdicts import evaluation
from spark_jobs.verdicts.carry_over import carried_ends, carried_requests
from spark_jobs.verdicts.check_rules import ReadCheckBacks
from tests.audit_campaign.contents import Contents
from tests.audit_campaign.rows_of_topics import HOP_KEYS, Laid, laid_out
from tests.audit_campaign.scene import GROUP, LAST, OWN, TOPIC_ID
from tests.audit_campaign.sight import SIGHTS

CHECK_BACK: Final = "check "
MODES: Final = ("batch", "continued", "follow")


class Said(NamedTuple):
    """What the audit says of a record."""

    verdict: str
    is_violation: bool
    detail: str


Verdicts = dict[str, Said]
"""By origin; what names no ingress record, by its own place with an @ before it."""


class _Open(NamedTuple):
    """What one audit leaves to the next."""

    requests: DataFrame
    ends: DataFrame
    spans: Mapping[int, Span]


def judged(laid: Laid, mode: str, folder: Path) -> Verdicts:
    """The last verdict of each record, in one of MODES."""
    with materialising(folder) as materialise:
        return _JUDGES[mode](laid, materialise)


def _batch(laid: Laid, materialise: Materialise) -> Verdicts:
    states = partition_states(laid.snapshot(LAST), NOTHING_READ)
    seen = laid.circumstances(LAST)
    return _collected(_evaluated(laid, LAST, states, None, laid.others, seen, materialise).verdicts)


def _continued(laid: Laid, materialise: Materialise) -> Verdicts:
    """One audit of what there was at the first moment, and one that continues it at the last."""
    found: Verdicts = {}
    before: _Open | None = None
    read_to = -1
    for moment in (0, LAST):
        spans = before.spans if before else {}
        read = ReadSoFar(OWN.ingress, TOPIC_ID, GROUP, spans, {})
        states = partition_states(laid.snapshot(moment), read)
        seen = laid.circumstances(moment)
        arrived = laid.others.filter(f"since > {read_to} AND since <= {moment}")
        done = _evaluated(laid, moment, states, before, arrived, seen, materialise)
        found = _together(found, _collected(done.verdicts))
        before, read_to = _left(done, states, materialise), moment
    return found


def _follow(laid: Laid, materialise: Materialise) -> Verdicts:
    """Batches that are judged by the moment before what arrived last."""
    found: Verdicts = {}
    before: _Open | None = None
    read_to = -1
    for moment in range(LAST + 1):
        arrived_to = min(moment + 1, LAST)
        states = _followed(laid, moment, before.spans if before else {})
        seen = laid.circumstances(moment, settled_only=True)
        arrived = laid.others.filter(f"since > {read_to} AND since <= {arrived_to}")
        done = _evaluated(laid, moment, states, before, arrived, seen, materialise)
        found = _together(found, _collected(done.verdicts))
        before, read_to = _left(done, states, materialise), arrived_to
    return found


_JUDGES: Final[dict[str, Callable[[Laid, Materialise], Verdicts]]] = {
    "batch": _batch,
    "continued": _continued,
    "follow": _follow,
}


class Prepared:
    """Runs as they are seen in one of SIGHTS, with everything done but the judgement."""

    def __init__(
        self,
        spark: SparkSession,
        runs: Sequence[Contents],
        sight: str,
        folder: Path,
        materialise: Materialise,
    ) -> None:
        change, unseen, self._settled_only = SIGHTS[sight]
        seen = [change(run) for run in runs]
        self._laid = laid_out(spark, seen, folder, unseen(seen))
        self._states = partition_states(self._laid.snapshot(LAST), NOTHING_READ)
        requests = _requests(self._laid, LAST, self._states)
        self._histories = materialise(record_histories(requests, _ends(self._laid.others)))

    def judged(self, materialise: Materialise) -> Verdicts:
        """One audit of everything."""
        frame = partition_frame(self._laid.ingress.sparkSession, self._states)
        seen = self._laid.circumstances(LAST, settled_only=self._settled_only)
        read = _checks_in(self._laid.others)
        found = evaluation.evaluate(self._histories, frame, seen, materialise, read)
        return _collected(found.verdicts)


def _together(before: Verdicts, now: Verdicts) -> Verdicts:
    """The last verdict of each record. But a wrong check-back is named once, by the audit that
    reads it, of a half message that has mostly not ended then."""
    lasting = {
        origin: said for origin, said in before.items() if said.detail.startswith(CHECK_BACK)
    }
    return {**before, **now, **lasting}


def _followed(laid: Laid, moment: int, spans: Mapping[int, Span]) -> list[PartitionState]:
    later = laid.snapshot(min(moment + 1, LAST))
    log_ends = {one.partition: one.log_end for one in later.ingress}
    return [
        batches._state(
            Position(
                one.partition,
                one.start,
                one.next_offset,
                one.committed.watermark_ms,
                one.committed.cursor,
                one.end,
                one.log_end,
            ),
            spans.get(one.partition),
            log_ends[one.partition],
        )
        for one in laid.snapshot(moment).ingress
    ]


def _evaluated(
    laid: Laid,
    moment: int,
    states: Sequence[PartitionState],
    before: _Open | None,
    arrived: DataFrame,
    seen: Circumstances,
    materialise: Materialise,
) -> evaluation.Evaluation:
    frame = partition_frame(laid.ingress.sparkSession, states)
    requests, found = _requests(laid, moment, states), _ends(arrived)
    if before:
        requests = requests.unionByName(before.requests)
        found = all_of(found, before.ends)
    histories = record_histories(requests, found)
    return evaluation.evaluate(histories, frame, seen, materialise, _checks_in(arrived))


def _requests(laid: Laid, moment: int, states: Sequence[PartitionState]) -> DataFrame:
    spark = laid.ingress.sparkSession
    ranges = [
        {"number": one.partition, "from_offset": one.closed_to, "to_offset": one.read_to}
        for one in states
    ]
    asked = local_rows(
        spark, ranges, {"number": "int", "from_offset": "bigint", "to_offset": "bigint"}
    )
    held = laid.ingress.join(
        f.broadcast(asked),
        f.expr("partition = number AND offset >= from_offset AND offset < to_offset"),
    ).drop("number", "from_offset", "to_offset", "since")
    return new_requests(held, laid.in_force(moment), laid.policies, HOP_KEYS)


def _ends(others: DataFrame) -> DataFrame:
    own = f.col("topic").isin(OWN.dead_letters, OWN.outcomes)
    held = others.drop("since")
    return all_of(
        deliveries(held.filter(~own), OWN.ingress),
        dead_letters(held.filter(f.col("topic") == OWN.dead_letters), OWN.ingress),
        outcomes(held.filter(f.col("topic") == OWN.outcomes), OWN.ingress),
    )


def _checks_in(arrived: DataFrame) -> ReadCheckBacks:
    return lambda topics: check_backs(arrived.filter(f.col("topic").isin(topics)))


def _left(
    done: evaluation.Evaluation, states: Sequence[PartitionState], materialise: Materialise
) -> _Open:
    """As the results of an audit have it on disk."""
    requests = materialise(carried_requests(done.carried))
    ends = materialise(carried_ends(done.carried))
    return _Open(
        conformed(requests, REQUESTS),
        conformed(ends, ENDS),
        {one.partition: one.span_after for one in states},
    )


def _collected(verdicts: DataFrame) -> Verdicts:
    names = ("partition", "offset", "verdict", "is_violation", "detail")
    place = ("at_topic", "at_partition", "at_offset")
    found: Verdicts = {}
    for row in verdicts.select(*names, *place).collect():
        origin = f"{OWN.ingress}/{row.partition}/{row.offset}"
        if row.partition is None:
            origin = f"@{row.at_topic}/{row.at_partition}/{row.at_offset}"
        assert origin not in found, f"{origin} has two verdicts"
        found[origin] = Said(row.verdict, row.is_violation, row.detail or "")
    return found
