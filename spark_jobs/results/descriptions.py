"""The meaning of each published column and key. The generated reference shows them."""

from collections.abc import Mapping
from typing import Final

AUDITS: Final[Mapping[str, str]] = {
    "audit": "the audit's name; names sort by time",
    "at_ms": "the moment of the audit",
    "until_ms": "time up to which all records are judged",
    "goes_on_from": "the audit that it continued",
    "result": "as in `summary.json`, or `portion` for records that are not judged yet",
    "violations": "the number of violations",
    "summary": "`summary.json`",
    "read": "how far it read each topic, for the next audit",
    "open_version": "the version of `open`, for the next audit",
    "repeat_inputs": "`repeat.json`",
    "report": "`report.html`",
}
VERDICTS: Final[Mapping[str, str]] = {
    "partition": "partition of the ingress record; null for an end without a record",
    "offset": "offset of the ingress record; null for an end without a record",
    "verdict": "the verdict",
    "is_violation": "whether the verdict is a violation",
    "detail": "the sentence of the verdict",
    "kind": "`record`, `prepare`, `commit`, `rollback`, `expire`, `cancel`, `recall`, `purge` or"
    " `refused`; null if its settings are unknown",
    "id": "its `timer-id`, or the id that a cancel, commit or rollback names; hexadecimal if not"
    " UTF-8",
    "target": "the requested target; of a purge: its pattern",
    "due_ms": "the requested due",
    "timestamp_ms": "the record's timestamp",
    "delivered_ms": "arrival in the target",
    "lateness_ms": "time from the due to the delivery; if the record, its move or its commit was"
    " written after the due, time from that writing",
    "overdue_ms": "time since the due of a record that has not ended",
    "ended_ms": "the time of the record at `at_offset`",
    "is_late": "whether it is later than `--max-lateness`, or than a minute without this option",
    "is_attested": "whether `ended_ms` is the broker's time",
    "at_topic": "topic of the end: of the delivery, else of the outcome, else of the dead letter",
    "at_partition": "partition of the end",
    "at_offset": "offset of the end",
    "next_offset": "offset of its successor",
    "ended_by": "offset of the record that cancelled, recalled, purged, replaced, moved, committed"
    " or rolled it back",
}
SUMMARY: Final[Mapping[str, str]] = {
    "result": "`held`, `violated` or `held as far as could be judged`",
    "verdicts": "counts by verdict; a continued audit counts new verdicts, and all pending records",
    "violations": "the number of violations",
    "violations_by": "violations by verdict",
    "not_judged": "records that could not be judged, by reason",
    "lateness_ms": "`p50`, `p99` and `max` of deliveries",
    "late": "delivered records later than `--max-lateness`, or than a minute without this option",
    "overdue": "records overdue by more than `--max-lateness`, or by a minute without this option",
    "believed": "dead letters whose reason no topic shows",
    "times": "deliveries whose time is `attested` by the broker or `claimed` by the proxy",
    "ingress": "the ingress topic",
    "control": "by `partition`: records `read`, with `verdicts`, and `skipped`; if the last"
    " two do not add up to `read`, the exit code is 1",
    "not_read": "topics that were not read",
    "ranges": "by partition `start`, `end`, `next_offset`, `watermark_ms`, `log_start`, `log_end`",
    "unverifiable": "deleted ranges: `partition`, `start`, `end`, `why`",
    "at_ms": "the moment of the audit",
    "audited_until_ms": "time up to which all records are judged; stands still while a due record"
    " has not ended",
}
