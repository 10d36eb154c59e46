"""Audits of many runs at once, in three modes. `batch` is one audit. In `continued`, a second audit
continues the first. `follow` audits the topics several times while they grow. Data frames replace
the reading of Kafka. All other code is the audit's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.audit_scope import AuditScope
from spark_jobs.histories.ends import (
    all_of,
    check_backs,
    dead_letters,
    deliveries,
    outcomes,
    record_histories,
)
from spark_jobs.histories.open_records import OpenRecords, ends_of, requests_of
from spark_jobs.histories.reader import (
    NOTHING_READ,
    PartitionState,
    ReadSoFar,
    Span,
    new_requests,
    partition_frame,
    partition_states,
)
from spark_jobs.runtime.frames import Materialise, local_rows, location, materialising
from spark_jobs.tables import Tables
from spark_jobs.verdicts import evaluation
from spark_jobs.verdicts.evaluation import ReadCheckBacks
from spark_jobs.verdicts.generations import open_rows
from tools.campaign.contents import Contents
from tools.campaign.rows_of_topics import HOP_KEYS, Laid, laid_out
from tools.campaign.scene import GROUP, LAST, MOMENTS_MS, OWN, TOPIC_ID
from tools.campaign.sight import SIGHTS

CHECK_BACK: Final = "check "
MODES: Final = ("batch", "continued", "follow")


class Said(NamedTuple):
    verdict: str
    is_violation: bool
    detail: str


Verdicts = dict[str, Said]
"""Origin -> what the audit says about the record. If a record in another topic names no ingress
record, the key is this record's own place, with an @ in front."""


class _Chain(NamedTuple):
    records: OpenRecords
    spans: dict[int, Span]


def judged(laid: Laid, mode: str, folder: Path) -> Verdicts:
    spark, place = laid.ingress.sparkSession, location(folder)
    chain = _Chain(OpenRecords(Tables(spark, place)), {})
    with materialising(spark, place) as materialise:
        return _JUDGES[mode](laid, chain, materialise)


def _batch(laid: Laid, _: _Chain, materialise: Materialise) -> Verdicts:
    return _collected(evaluated(laid, laid.scope(LAST), materialise).verdicts)


def evaluated(laid: Laid, seen: AuditScope, materialise: Materialise) -> evaluation.Evaluation:
    states = partition_states(laid.snapshot(LAST), NOTHING_READ)
    new = _requests(laid, LAST, states), _ends(laid.others)
    return _evaluated(states, new, seen, _checks_in(laid.others), materialise)


def _continued(laid: Laid, chain: _Chain, materialise: Materialise) -> Verdicts:
    found: Verdicts = {}
    read_to = -1
    for moment in (0, LAST):
        read = ReadSoFar(OWN.ingress, TOPIC_ID, GROUP, dict(chain.spans), {})
        states = partition_states(laid.snapshot(moment), read)
        seen = laid.scope(moment)
        arrived = laid.others.filter(f"since > {read_to} AND since <= {moment}")
        done = _gone_on(laid, moment, states, chain, arrived, seen, materialise)
        found, read_to = _together(found, done), moment
    return found


def _follow(laid: Laid, chain: _Chain, materialise: Materialise) -> Verdicts:
    """Audit only records that must have ended. Each audit reads positions that are one moment older
    than the newest records that it reads."""
    found: Verdicts = {}
    read_to = -1
    for moment in range(LAST + 1):
        arrived_to = min(moment + 1, LAST)
        states = _followed(laid, moment, chain.spans)
        seen = laid.scope(moment, settled_only=True)
        arrived = laid.others.filter(f"since > {read_to} AND since <= {arrived_to}")
        done = _gone_on(laid, moment, states, chain, arrived, seen, materialise)
        found, read_to = _together(found, done), arrived_to
    return found


_JUDGES: Final[dict[str, Callable[[Laid, _Chain, Materialise], Verdicts]]] = {
    "batch": _batch,
    "continued": _continued,
    "follow": _follow,
}


class Prepared:
    """Runs seen in one of the views SIGHTS. The records are read and parsed already. Only the
    verdicts are computed later."""

    def __init__(
        self,
        spark: SparkSession,
        runs: Sequence[Contents],
        sight: str,
        folder: Path,
        materialise: Materialise,
    ) -> None:
        change, unseen, self._settled_only, self._at = SIGHTS[sight]
        seen = [change(run) for run in runs]
        self._laid = laid_out(spark, seen, folder, unseen(seen))
        self._states = partition_states(self._laid.snapshot(LAST), NOTHING_READ)
        requests = _requests(self._laid, LAST, self._states)
        self._histories = materialise(record_histories(requests, _ends(self._laid.others)))

    def judged(self, materialise: Materialise) -> Verdicts:
        frame = partition_frame(self._laid.ingress.sparkSession, self._states)
        then = self._laid.scope(self._at, settled_only=self._settled_only)
        seen = replace(then, seen_ms=MOMENTS_MS[LAST])
        read = _checks_in(self._laid.others)
        scoped = evaluation.in_scope(frame, seen)
        found = evaluation.evaluate(self._histories, scoped, materialise, read)
        return _collected(found.verdicts)


def _together(before: Verdicts, now: Verdicts) -> Verdicts:
    """Return the last verdict of each record. A verdict about a wrong check-back stays, because
    only the audit that reads the check-back gives it. Later audits usually give the half message
    another verdict."""
    lasting = {
        origin: said for origin, said in before.items() if said.detail.startswith(CHECK_BACK)
    }
    return {**before, **now, **lasting}


def _followed(laid: Laid, moment: int, spans: Mapping[int, Span]) -> list[PartitionState]:
    later = laid.snapshot(min(moment + 1, LAST))
    log_ends = {one.partition: one.log_end for one in later.ingress}
    read = ReadSoFar(OWN.ingress, TOPIC_ID, GROUP, dict(spans), {})
    return [
        one._replace(log_end=max(log_ends[one.partition], one.read_to))
        for one in partition_states(laid.snapshot(moment), read, settled_only=True)
    ]


def _gone_on(
    laid: Laid,
    moment: int,
    states: Sequence[PartitionState],
    chain: _Chain,
    arrived: DataFrame,
    seen: AuditScope,
    materialise: Materialise,
) -> Verdicts:
    requests, ends = materialise(_requests(laid, moment, states)), materialise(_ends(arrived))
    closed = partition_frame(requests.sparkSession, states).select("partition", "closed_to")
    touched = chain.records.touched(seen.at_ms, (requests, ends), closed, materialise)
    new = requests.unionByName(requests_of(touched.rows)), all_of(ends, ends_of(touched.rows))
    done = _evaluated(states, new, seen, _checks_in(arrived), materialise)
    found = _collected(done.verdicts)
    chain.records.put(touched, open_rows(done.carried))
    chain.spans.update({one.partition: one.span_after for one in states})
    return found


def _evaluated(
    states: Sequence[PartitionState],
    new: tuple[DataFrame, DataFrame],
    seen: AuditScope,
    checks: ReadCheckBacks,
    materialise: Materialise,
) -> evaluation.Evaluation:
    histories = record_histories(*new)
    frame = partition_frame(histories.sparkSession, states)
    return evaluation.evaluate(histories, evaluation.in_scope(frame, seen), materialise, checks)


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
