"""The rules that a record can break: SQL over the columns of its history."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from spark_jobs.audit_scope import DROP, USUAL_MS
from spark_jobs.histories.ends import (
    CONTROL_OUTCOMES,
    HOP_OUTCOMES,
    IS_MOVE,
    MISSED_ITS_PLACE,
    MOVED,
    WAS_MOVED,
)
from spark_jobs.records.hashes import text_key_number
from spark_jobs.records.headers import DUE, FIRST_ORIGIN, ORIGIN
from spark_jobs.requests.error_codes import (
    DECIDED_WHEN_READ,
    DEFECT,
    OF_DEAD_LETTERED,
    OVERDUE,
    TRANSACTION_EXPIRED,
    TRANSIENT,
)
from spark_jobs.requests.parsing import CONTROLS, TAKE_BACK
from spark_jobs.runtime.frames import quoted

VALUE: Final = re.compile(r"\{(.*?)\}", re.DOTALL)
OF_OUTCOME: Final = "its outcome"
"""In a table of rules, the outcome's name takes the place of this verdict."""


class Rule(NamedTuple):
    """A verdict with its condition `holds` (SQL), and `detail`, the text for `sentence`.
    If `verdict` is None, the name of the outcome is the verdict.
    """

    verdict: str | None
    holds: str
    detail: str = ""


def rules(table: str) -> tuple[Rule, ...]:
    """Parse a table. A rule is a line `- verdict: detail`, and `if condition` in the next line."""
    found = list[Rule]()
    for text in re.split(r"^- ", table, flags=re.MULTILINE)[1:]:
        head, holds = text.split("\n  if ", 1)
        verdict, _, detail = head.partition(": ")
        found.append(Rule(None if verdict == OF_OUTCOME else verdict, holds.rstrip(), detail))
    return tuple(found)


def ruling(rules: Iterable[Rule]) -> str:
    """Return SQL of the verdict and the detail of the first rule that holds."""
    branches = list[str]()
    for verdict, holds, detail in rules:
        name = _quoted(verdict) if verdict else "replace(outcome.end, '-', '_')"
        found = f"named_struct('verdict', {name}, 'detail', {sentence(detail)})"
        branches.append(f"WHEN {holds} THEN {found}")
    return f"CASE {' '.join(branches)} END"


def sentence(text: str) -> str:
    """Return SQL of the text, with a value in place of each `{sql}`. An empty text gives null."""
    literal, *more = VALUE.split(text)
    if more[1:] == [""] and not literal:
        return f"CAST({more[0]} AS string)"
    parts = [_quoted(literal)]
    for value, after in zip(more[::2], more[1::2], strict=True):
        parts += [f"coalesce(CAST({value} AS string), 'nothing')", _quoted(after)]
    return f"concat({', '.join(parts)})" if text else "CAST(NULL AS string)"


def differences(pairs: Mapping[str, tuple[str, str]]) -> str:
    """Return SQL of the names of pairs that differ, joined by commas; empty if none differs."""
    parts = [f"IF({one} <=> {other}, NULL, '{name}')" for name, (one, other) in pairs.items()]
    return f"concat_ws(', ', {', '.join(parts)})"


def _quoted(text: str) -> str:
    assert not {"'", "\\"} & {*text}, "a text in a rule has neither quotes nor backslashes"
    return f"'{text}'"


# Lateness counts from the due, or from the first possible delivery if that is later. No reason
# excuses lateness, not even a paused target.

_WRITTEN_MS: Final = "IF(request.timestamp_ms < 0, NULL, request.timestamp_ms)"
DUE_FROM_MS: Final = f"""
CASE WHEN request.kind = 'record'
    THEN greatest(request.due_ms, coalesce(first_ms, {_WRITTEN_MS}))
  WHEN request.kind = 'prepare' AND decision.kind = 'commit'
    THEN greatest(request.due_ms, {_WRITTEN_MS}, decision.timestamp_ms)
  WHEN request.kind = 'prepare' THEN coalesce(decision.timestamp_ms, request.expires_ms)
  WHEN request.kind IS NOT NULL THEN {_WRITTEN_MS} END
"""
"""SQL: the earliest time at which the record could end as requested; null if unknown."""
LATENESS_MS: Final = f"(delivery.at_ms - ({DUE_FROM_MS}))"
OVERDUE_MS: Final = f"""
IF(deliveries = 0 AND outcomes = 0 AND NOT must_have_ended AND at_ms >= ({DUE_FROM_MS}),
  at_ms - ({DUE_FROM_MS}), NULL)
"""
"""SQL: the time since a record without an end became due."""
_ASKED_MS: Final = """
coalesce(get(filter(lateness_limits, limit -> request.target RLIKE limit.targets), 0).max_ms,
  most_late_ms)
"""
IS_LATE: Final = f"""
coalesce(coalesce({LATENESS_MS}, {OVERDUE_MS}) > coalesce({_ASKED_MS}, {USUAL_MS}), false)
"""
"""SQL: whether the lateness is above the limit, or above USUAL_MS if there is no limit."""
_IS_OVERDUE: Final = f"NOT settled_only AND {OVERDUE_MS} > {_ASKED_MS}"
"""A continuous audit never gives the verdict `overdue`, because the record may still end."""
_OVERDUE: Final = f"it has been due for {{{OVERDUE_MS}}} ms, {{{_ASKED_MS}}} ms are allowed"

# When the proxy reads a record, it ends the pending record or half message with the same id. No
# later transaction delivers the ended record (docs/guide.md#cancel-and-replace). A recall or move
# ends the record that it names, whether the ids are the same or not.

TRANSACTION_MS: Final = 10_000
"""The records of one transaction are written within this time."""
CLOCK_MS: Final = 5_000
"""The proxy's clock may be this far ahead of the broker's (the setting `clock.max_step`)."""


def delivered_after(delivered_ms: str, wanted_ms: str, read_ms: str) -> str:
    """Return SQL: whether a record was pending at `read_ms`, and was delivered all the same.
    `read_ms`: when the proxy read another record that ends this one. `wanted_ms`: the earliest
    delivery of this record.
    """
    return (
        f"({delivered_ms} > {read_ms} + {TRANSACTION_MS} OR {wanted_ms} > {read_ms} + {CLOCK_MS})"
    )


_AFTER: Final = delivered_after("named.delivered_ms", "named.wanted_ms", "outcome.at_ms")
_WAS_PENDING: Final = f"(named.delivered_ms IS NOT NULL AND {_AFTER})"
_IS_IGNORED: Final = f"({_WAS_PENDING} OR named.ended_ms > outcome.at_ms + {TRANSACTION_MS})"
_HOW: Final = "IF(named.delivered_ms IS NULL, concat('ended as ', named.end), 'was delivered')"
_SAYS_MISSED: Final = f"""
(outcome.end = 'missed' AND offset < next_offset AND (request.kind IN {quoted(TAKE_BACK)}
  OR ({MISSED_ITS_PLACE} AND named.offset = request.hop_from)))
"""
_IS_STILL_PENDING: Final = """
(named.end = 'delivered' AND named.delivered_ms IS NULL AND named.wanted_ms > watermark_ms
  AND prev_opener.offset <= named.offset AND named.is_seen)
"""


_HAS_HOPPED: Final = "(request.first_origin IS NOT NULL OR request.hop_from IS NOT NULL)"
TARGET_PARTITION: Final = (
    "coalesce(request.target_partition, request.key_number % target_partitions)"
)
"""SQL: the target partition of a record, or null if any partition is right."""
_PARTITION: Final = f"CAST(coalesce({TARGET_PARTITION}, delivery.at_partition) AS int)"
_EXPECTED: Final = {
    "topic": ("request.target", "delivery.topic"),
    "partition": (_PARTITION, "delivery.at_partition"),
    "key": ("request.key_hash", "delivery.key_hash"),
    "value": ("request.value_hash", "delivery.value_hash"),
    "headers": ("request.headers_hash", "delivery.headers_hash"),
    "timer-due": ("request.due_ms", "delivery.due_ms"),
    "stamps": (
        f"IF({_HAS_HOPPED}, '{ORIGIN},{DUE},{FIRST_ORIGIN}', '{ORIGIN},{DUE}')",
        "delivery.stamps",
    ),
    "timer-first-origin": ("request.first_origin", "delivery.first_origin"),
}
MAY_BE_DELIVERED: Final = """
(coalesce(request.kind = 'prepare' AND decision.kind = 'commit', false)
  OR (request.kind = 'record' AND overtaken_by IS NULL))
"""
"""SQL: whether the ingress log allows a delivery of the record."""
_OVERTAKEN: Final = sentence(
    "{IF(overtaken_by.kind = 'purge', 'a purge that covers it', 'a record or cancel with its id')},"
    " at offset {overtaken_by.offset}, came while it was rewritten"
)
_WHY_NOT: Final = f"""
CASE WHEN overtaken_by IS NOT NULL THEN {_OVERTAKEN}
  WHEN request.kind = 'refused' THEN {sentence("it must be refused ({request.code})")}
  WHEN request.kind = 'prepare' THEN 'nobody has committed this half message'
  ELSE 'it is a control record' END
"""
_TOO_SOON_MS: Final = "request.wanted_ms - delivery.at_ms"
_CHANGED: Final = differences(_EXPECTED)
DELIVERY_RULES: Final = rules(f"""
- contradicted: it was delivered: {{{_WHY_NOT}}}
  if deliveries = 1 AND NOT {MAY_BE_DELIVERED}
- contradicted: it was delivered, but it has a dead letter
  if deliveries = 1 AND letters > 0
- altered: it arrived with a different {{{_CHANGED}}}
  if deliveries = 1 AND {_CHANGED} != ''
- early: it arrived {{{_TOO_SOON_MS}}} ms before its due
  if deliveries = 1 AND {_TOO_SOON_MS} > 0
- early: the audit saw it {{request.wanted_ms - seen_ms}} ms before its due, but not its timestamp
  if deliveries = 1 AND request.wanted_ms > seen_ms + {CLOCK_MS}
- late: it arrived {{{LATENESS_MS}}} ms late, {{{_ASKED_MS}}} ms are allowed
  if deliveries = 1 AND {LATENESS_MS} > {_ASKED_MS}
- delivered
  if deliveries = 1
""")

# The record at offset x that fires at d has ended if x < O and (d, x) <= (T, C)
# (docs/exactly-once.md#1-when-a-record-has-ended). A record that was replaced, moved, or superseded
# in mid-hop ended when the later record was ingested. Control records, refused records, and moves
# that came too late end when they are ingested.


def _ingested(offset: str) -> str:
    return f"coalesce({offset} < next_offset, false)"


def _passed(time_ms: str, entry_offset: str) -> str:
    return (
        f"({time_ms} <= at_ms AND ({time_ms} < watermark_ms"
        f" OR ({time_ms} = watermark_ms AND {entry_offset} <= cursor)))"
    )


def _fired(entry_offset: str) -> str:
    """Return SQL: whether the record fired. For a half message, `entry_offset` is its commit's."""
    return _passed("request.fires_ms", entry_offset)


_SUPERSEDED: Final = f"""
({_ingested("next_opener.offset")}
  AND (next_opener.kind != 'purge' OR outcome.end = 'cancelled'))
"""
"""Whether a later record has ended this one.
A purge needs the outcome as proof, because a purged record may have no outcome before its due.
"""
_OVERDUE_HALF: Final = f"(next_opener IS NULL AND {_passed('request.expires_ms', 'offset')})"
"""Whether an undecided half message must have expired.
The proxy writes an `expire` record, and ends the half message when it reads this record. A record
with the same id that was written before the `expire` record ends the half message instead.
"""
_BY_A_MOVE: Final = f"""
({_ingested("offset")} AND ({MISSED_ITS_PLACE}
  OR ({WAS_MOVED} AND {_ingested("outcome.next_offset")})))
"""
MUST_HAVE_ENDED: Final = f"""
coalesce(CASE
  WHEN request IS NULL THEN false
  WHEN {_BY_A_MOVE} THEN true
  WHEN request.kind = 'record' THEN {_ingested("offset")}
    AND ({_fired("offset")} OR overtaken_by IS NOT NULL OR {_SUPERSEDED})
  WHEN request.kind = 'prepare' AND {_SUPERSEDED} THEN true
  WHEN request.kind = 'prepare' AND decision.kind IN ('rollback', 'expire')
    THEN {_ingested("decision.offset")}
  WHEN request.kind = 'prepare' AND decision IS NOT NULL
    THEN {_ingested("decision.offset")} AND {_fired("decision.offset")}
  WHEN request.kind = 'prepare' THEN {_ingested("offset")} AND {_OVERDUE_HALF}
  ELSE {_ingested("offset")}
END, false)
"""
"""SQL: whether the record has ended according to the committed position."""

# The audit may not see an end, but most ends leave two traces. A dead-lettered record also has an
# outcome. A rewritten record has a successor. A cancel or replacement is in the ingress. So an
# unseen outcome explains an end only if the other trace is there or unseen, too, or cannot exist.

IS_ENDLESS: Final = "(must_have_ended AND deliveries = 0 AND outcomes = 0)"
"""SQL: whether a record must have ended, and no end is seen."""


def unseen_outcome(offset: str) -> str:
    """Return SQL of why the record's outcome may be unseen (`audit_scope.Unseen`).
    The record's origin is the outcome's key, which decides the outcome's partition.
    """
    origin = f"concat(ingress_topic, '/', partition, '/', {offset})"
    number = f"CAST({text_key_number(origin)} % size(outcomes_unseen) AS int)"
    return f"get(outcomes_unseen, IF(size(outcomes_unseen) = 1, 0, {number}))"


_AT_TARGET: Final = f"""
CASE WHEN {TARGET_PARTITION} IS NULL THEN array_max(target_unseen)
  ELSE get(target_unseen, CAST({TARGET_PARTITION} AS int)) END
"""
"""The Unseen of the record's target partition.
A record without a key may be in any partition, so the latest Unseen of all is taken.
"""
_MAY_BE_DROPPED: Final = f"""
(overdue_rules IS NULL OR request.wanted_ms < overdue_known_ms OR exists(overdue_rules,
  rule -> rule.action = '{DROP}' AND request.target RLIKE rule.targets))
"""
_OUTCOME_ALONE_FROM_MS: Final = f"""
least(
  IF(request.kind IN {quoted(CONTROLS)}, request.timestamp_ms, NULL),
  IF(overtaken_by IS NOT NULL, request.timestamp_ms, NULL),
  IF(next_opener.offset < next_offset, next_opener.timestamp_ms, NULL),
  IF(request.kind = 'prepare' AND decision.kind = 'rollback', decision.timestamp_ms, NULL),
  IF(successors > 0, went_on_ms, NULL),
  IF({IS_MOVE}, request.timestamp_ms, NULL),
  IF({_MAY_BE_DROPPED}, request.wanted_ms, NULL))
"""
_UNSEEN_END: Final = f"""
CASE WHEN {MAY_BE_DELIVERED} AND unseen_at_target.until_ms >= request.wanted_ms
    THEN unseen_at_target
  WHEN unseen_outcome.until_ms >= {_OUTCOME_ALONE_FROM_MS} THEN unseen_outcome
  WHEN least(unseen_outcome.until_ms, letters_unseen.until_ms) >= request.timestamp_ms
    AND unseen_outcome IS NOT NULL AND letters_unseen IS NOT NULL THEN unseen_outcome END
"""
UNSEEN_STEPS: Final = (
    {
        "unseen_at_target": f"IF({IS_ENDLESS}, {_AT_TARGET}, NULL)",
        "unseen_outcome": f"IF({IS_ENDLESS} OR letters > 0, {unseen_outcome('offset')}, NULL)",
    },
    {"unseen_end": f"IF({IS_ENDLESS}, {_UNSEEN_END}, NULL)"},
)
"""Columns of the type UNSEEN. They are null if the end is seen."""


def in_steps(frame: DataFrame, steps: Iterable[Mapping[str, str]]) -> DataFrame:
    """Return the frame with further columns (SQL). Each step may use the earlier columns."""
    for step in steps:
        frame = frame.selectExpr("*", *[f"{sql} AS {name}" for name, sql in step.items()])
    return frame


_SUCCEEDS: Final = (
    f"request.hop_from >= known_from AND (request.kind = 'record' OR {IS_MOVE})"
    f" AND offset < next_offset AND NOT {MISSED_ITS_PLACE}"
)
_HOP_FROM_OUTCOME: Final = unseen_outcome("from_offset")
_OUTCOME_UNSEEN: Final = (
    "came_from IS NULL AND outcomes_unseen IS NOT NULL"
    f" AND {_HOP_FROM_OUTCOME}.until_ms >= request.timestamp_ms"
)
_GOES_ON: Final = f"""
IF({IS_MOVE}, came_from <=> '{MOVED}', coalesce(came_from IN {quoted(HOP_OUTCOMES)}, false))
"""
_OWN_OUTCOME: Final = unseen_outcome("offset")
_MAY_HAVE_MISSED: Final = (
    f"{_SUCCEEDS} AND {IS_MOVE} AND NOT {_GOES_ON} AND deliveries = 0 AND outcomes = 0"
    f" AND letters = 0 AND {_OWN_OUTCOME}.until_ms >= request.timestamp_ms"
)
_FROM: Final = "IF(came_from IS NULL, 'has no outcome', concat('ended as ', came_from))"
_NAMES_NOTHING: Final = """
IF(partition IS NULL, 'its timer-origin names no record',
  'the ingress never held a committed record there')
"""
RECORD_DELETED: Final = "the ingress has deleted the record"
KNOWN_RULES: Final = rules(f"""
- unverifiable: {RECORD_DELETED}
  if request IS NULL AND offset < read_from
- duplicated: an earlier audit saw its end, and this is another end
  if request IS NULL AND offset < closed_to
- orphaned: {{{_NAMES_NOTHING}}}
  if request IS NULL
- unverifiable: the proxy has not read it, and the settings that will apply are unknown
  if request.kind IS NULL AND offset >= next_offset
- overdue: {_OVERDUE}
  if offset >= next_offset AND {_IS_OVERDUE}
- pending: the proxy has not read it
  if offset >= next_offset
- pending: {{{_HOP_FROM_OUTCOME}.why}}
  if {_SUCCEEDS} AND {_OUTCOME_UNSEEN} AND {_HOP_FROM_OUTCOME}.is_open
- unverifiable: it continues offset {{request.hop_from}}, whose outcome is gone
  if {_SUCCEEDS} AND {_OUTCOME_UNSEEN}
- pending: {{{_OWN_OUTCOME}.why}}
  if {_MAY_HAVE_MISSED} AND {_OWN_OUTCOME}.is_open
- unverifiable: it may have come too late: {{{_OWN_OUTCOME}.why}}
  if {_MAY_HAVE_MISSED}
- contradicted: it continues offset {{request.hop_from}}, which {{{_FROM}}}
  if {_SUCCEEDS} AND NOT {_GOES_ON}
- unverifiable: the settings that applied to it are unknown
  if request.kind IS NULL
- unverifiable: the name of a header has U+FFFD, or bytes that are not UTF-8: Java shows both alike
  if request.is_blurred AND NOT coalesce(outcome.end = 'dead-lettered', false)
- pending
  if settled_only AND NOT must_have_ended
""")
COUNT_RULES: Final = rules("""
- contradicted: it was delivered, but its outcome is {outcome.end}
  if deliveries > 0 AND outcomes > 0
- duplicated: it was delivered {deliveries} times
  if deliveries > 1
- contradicted: its outcomes are {outcome.end} and {last_outcome}
  if outcomes > 1 AND outcome.end != last_outcome
- duplicated: it has {outcomes} outcomes
  if outcomes > 1
""")
_NO_END: Final = "deliveries = 0 AND outcomes = 0"
_MAY_HAVE_GONE: Final = f"""
coalesce((successors > 0 OR next_opener.kind = 'purge')
  AND {_OWN_OUTCOME}.until_ms >= request.timestamp_ms, false)
"""
"""Whether a move or purge may have ended the record early, and the outcome may be unseen."""
ENDLESS_RULES: Final = rules(f"""
- pending: {{unseen_end.why}}
  if {_NO_END} AND unseen_end.is_open
- pending: {{unseen_outcome.why}}
  if {_NO_END} AND letters > 0 AND unseen_outcome.is_open
- unverifiable: it has a dead letter, but no outcome: {{unseen_outcome.why}}
  if {_NO_END} AND letters > 0 AND unseen_outcome.until_ms >= letter.at_ms
- contradicted: it has a dead letter, but no outcome
  if {_NO_END} AND must_have_ended AND letters > 0
- unverifiable: it should have ended: {{unseen_end.why}}
  if {_NO_END} AND unseen_end IS NOT NULL
- missing: the committed offsets say that it has ended, but no topic shows how
  if {_NO_END} AND must_have_ended
- overdue: {_OVERDUE}
  if {_IS_OVERDUE} AND NOT {_MAY_HAVE_GONE}
- pending
  if {_NO_END}
""")
"""Rules for records without delivery and without outcome."""

# Rules for outcomes: whether each outcome is possible and true.

NAMES_ONE: Final = "coalesce(outcome.detail LIKE 'purged by %', false)"
"""SQL: whether an outcome says that a purge ended its record."""
EITHER: Final = "either"
"""The expected outcome of a control record for which both applied and missed are right.
The record that the control record names is deleted, was requeued, or has an unseen outcome.
"""


def named_by(purge: str) -> str:
    """Return SQL of the outcome detail that names this purge (a struct with `offset`)."""
    return f"concat('purged by ', ingress_topic, '/', partition, '/', {purge}.offset)"


NAMES_ID: Final = ("cancelled", "replaced", "rolled-back", *CONTROL_OUTCOMES)
"""Outcomes that always name their record's id."""
_DROPPED: Final = "contains(outcome.detail, '(release.overdue)')"
"""Whether the setting release.overdue expired the record. Then there is no dead letter."""
_MAY_FIRE: Final = "(request.kind = 'record' OR decision.kind = 'commit')"
_SUPERSEDED_BY: Final = "coalesce(overtaken_by, next_opener)"
"""The record that ended this one: the last opener in mid-hop, or else the next opener.
An opener is a record that ends an earlier one of its id (`generations`).
"""
_EXPECTED_OUTCOME: Final = "IF(offset < next_offset, expected, NULL)"
"""The outcome that a control record must have, once the proxy has committed beyond it."""
_MAY_BE_MOVED: Final = f"""
({_MAY_FIRE} AND overtaken_by IS NULL
  AND coalesce(next_opener.offset > outcome.next_offset, true)
  AND coalesce(successor = outcome.next_offset, true)
  AND coalesce(keeps_due = (outcome.end = 'requeued'), true))
"""
"""Whether a move can have taken the record's place: nothing ended the record before the move."""
_WAS_TAKEN_BACK: Final = """
coalesce(IF(request.kind = 'prepare', decision.kind = 'rollback' AND decision.offset < next_offset,
  request.kind = 'record' AND overtaken_by IS NOT NULL), false)
"""
"""Whether the record never fired, because it was rolled back, or ended when it was ingested."""
_BY_A_DEFECT: Final = f"coalesce(startswith(outcome.detail, '{DEFECT}: '), false)"
"""Whether a defect of the proxy ended the record, which is possible at any time."""
_POSSIBLE: Final = f"""
coalesce(CASE
  WHEN request.kind IN {quoted(CONTROLS)}
    THEN outcome.end = 'dead-lettered' OR (outcome.end IN {quoted(CONTROL_OUTCOMES)}
      AND coalesce({_EXPECTED_OUTCOME}, '{EITHER}') IN ('{EITHER}', outcome.end))
  WHEN outcome.end = 'dead-lettered' THEN NOT {_WAS_TAKEN_BACK} OR {_BY_A_DEFECT}
  WHEN outcome.end = 'missed' THEN {IS_MOVE}
  WHEN request.kind = 'refused' THEN false
  WHEN {WAS_MOVED} THEN {_MAY_BE_MOVED}
  WHEN outcome.end IN ('cancelled', 'replaced') AND request.hop_from < known_from THEN true
  WHEN outcome.end = 'cancelled' AND ({NAMES_ONE} OR {_SUPERSEDED_BY}.kind = 'purge')
    THEN {_SUPERSEDED_BY}.kind = 'purge' AND outcome.detail = {named_by(_SUPERSEDED_BY)}
  WHEN outcome.end = 'cancelled' THEN {_SUPERSEDED_BY}.kind IN {quoted(TAKE_BACK)}
  WHEN outcome.end = 'replaced' THEN {_SUPERSEDED_BY}.kind NOT IN {quoted(TAKE_BACK)}
    AND outcome.next_offset = {_SUPERSEDED_BY}.offset
  WHEN overtaken_by IS NOT NULL THEN false
  WHEN outcome.end = 'rolled-back' THEN decision.kind = 'rollback'
  WHEN outcome.end = 'expired' AND {_DROPPED} THEN {_MAY_FIRE}
  WHEN outcome.end = 'expired' THEN decision.kind = 'expire'
  WHEN outcome.end = 'rolled' THEN {_MAY_FIRE} AND request.fires_ms < request.wanted_ms
  WHEN outcome.end = 'requeued' THEN {_MAY_FIRE}
  ELSE false
END, false)
"""
"""Whether the ingress log allows this outcome for this record.
If the record's predecessor is unknown, `cancelled` and `replaced` are allowed, because
another unknown record may have ended this record in mid-hop.
"""
_SUPERSEDING: Final = sentence(
    f"the next record with its id is a {{{_SUPERSEDED_BY}.kind}}"
    f" at offset {{{_SUPERSEDED_BY}.offset}}"
)
_NEXT_OF_ID: Final = f"""
IF({_SUPERSEDED_BY} IS NULL, 'no later record or cancel has its id', {_SUPERSEDING})
"""
_NEXT: Final = f"""
CASE WHEN {_SUPERSEDED_BY}.kind = 'purge'
    THEN {sentence(f"it was ended by the purge at offset {{{_SUPERSEDED_BY}.offset}}")}
  WHEN {NAMES_ONE} THEN concat({sentence("it says {outcome.detail}, which does not cover it; ")},
    {_NEXT_OF_ID})
  ELSE {_NEXT_OF_ID} END
"""
_WHY_NO_OUTCOME: Final = f"""
CASE WHEN expected IS NOT NULL THEN {sentence("it should say {expected}")}
  WHEN request.kind = 'refused' THEN {sentence("it must be refused ({request.code})")}
  WHEN {WAS_MOVED} AND successor != outcome.next_offset
    THEN {sentence("its successor is at offset {successor}")}
  WHEN {WAS_MOVED} AND keeps_due != (outcome.end = 'requeued')
    THEN {sentence("its successor at offset {successor} has a due that contradicts this")}
  WHEN request.kind = 'prepare'
    THEN concat({sentence("its decision is {decision.kind}")}, ', ', {_NEXT})
  ELSE {_NEXT} END
"""
_IS_DEAD_LETTERED: Final = f"""
(outcome.end = 'dead-lettered' OR (outcome.end = 'expired' AND NOT coalesce({_DROPPED}, false)))
"""
_LACKS_LETTER: Final = f"(letters = 0 AND {_IS_DEAD_LETTERED})"
_LETTER_GONE: Final = "coalesce(letters_unseen.until_ms >= outcome.at_ms, false)"
_WRONG_CODE: Final = f"""
CASE WHEN request.kind = 'refused' AND letter.code != request.code
    THEN {sentence("dead-lettered for {letter.code}, but its fault is {request.code}")}
  WHEN request.kind != 'refused' AND letter.code IN {quoted(DECIDED_WHEN_READ)}
    THEN {sentence("dead-lettered for {letter.code}, but nothing is wrong with it")}
  WHEN request.kind IN {quoted(CONTROLS)} AND letter.code != '{DEFECT}'
    THEN {sentence("dead-lettered for {letter.code}, which is impossible for a {request.kind}")}
  WHEN outcome.end = 'dead-lettered' AND letter IS NOT NULL
    AND NOT coalesce(letter.code IN {quoted(OF_DEAD_LETTERED)}, false)
    THEN {sentence("dead-lettered for {letter.code}, which is not a reason")}
  WHEN outcome.end = 'expired' AND letter IS NOT NULL
    AND NOT letter.code <=> '{TRANSACTION_EXPIRED}'
    THEN {sentence("it expired, but its dead letter says {letter.code}")} END
"""
_FAILURES: Final = "(coalesce(request.hop_attempt, 0) + 1)"
_OVERDUE_BY_RULE: Final = f"""
exists(overdue_rules, rule -> contains(coalesce(letter.detail, outcome.detail), rule.said)
  AND request.target RLIKE rule.targets
  AND rule.action = IF(outcome.end = 'expired', '{DROP}', 'dead-letter'))
"""
_TOO_FEW: Final = sentence(
    f"dead-lettered for {{letter.code}} after {{{_FAILURES}}} of {{least_attempts}} attempts"
)
_NOT_DUE: Final = sentence(
    "{outcome.end} as overdue {request.wanted_ms - outcome.at_ms} ms before its due"
)
_CHECKS_LEFT: Final = sentence(
    "it expired {request.expires_ms - outcome.at_ms} ms too early after its last check"
)
_WRONG_REASON: Final = f"""
CASE WHEN letter.code = 'body-gone' AND request.known_verdict IS NULL
    AND letter.at_ms < reading_from_ms
    THEN 'dead-lettered for body-gone, but the ingress still has the record'
  WHEN letter.code IN {quoted(TRANSIENT)} AND {_FAILURES} < least_attempts
    THEN {_TOO_FEW}
  WHEN outcome.end = 'expired' AND decision.kind = 'expire'
    AND outcome.at_ms + {CLOCK_MS} < request.expires_ms
    THEN {_CHECKS_LEFT}
  WHEN NOT coalesce({_DROPPED} OR letter.code = '{OVERDUE}', false) THEN NULL
  WHEN outcome.at_ms < request.wanted_ms THEN {_NOT_DUE}
  WHEN outcome.at_ms >= overdue_known_ms AND NOT {_OVERDUE_BY_RULE}
    THEN {sentence("{outcome.end} as overdue, but there was no such rule: {outcome.detail}")} END
"""
_LETTER_VALUE: Final = "coalesce(letter.value_hash, xxhash64(CAST(NULL AS binary)))"
_LETTER_ALTERED: Final = f"""
(letter IS NOT NULL AND NOT (letter.letter_hash <=> request.letter_hash
    AND ({_LETTER_VALUE} <=> request.value_hash
      OR (letter.value_hash IS NULL
        AND contains(outcome.detail, '; its dead letter has no value: '))))
  AND NOT coalesce(letter.code = 'body-gone', false)
  AND NOT coalesce(letter.is_bare
    AND contains(outcome.detail, '; its dead letter has no key, '), false))
"""
"""Whether a dead letter differs from its record.
If the record's outcome says so, the letter may omit the value, or all but origin and reason.
"""
_SAYS_OTHER: Final = f"""
concat_ws(' and ',
  IF((outcome.end NOT IN ('dead-lettered', 'applied', 'missed') OR {MISSED_ITS_PLACE})
    AND request.kind != 'refused' AND NOT (outcome.due_ms <=> request.due_ms)
    AND NOT (outcome.end IN ('cancelled', 'replaced') AND outcome.due_ms IS NULL), 'due', NULL),
  IF(is_valid_utf8(CAST(request.ident AS string)) AND NOT (outcome.ident <=> request.ident)
    AND (outcome.ident IS NOT NULL OR outcome.end IN {quoted(NAMES_ID)}), 'id', NULL))
"""
"""The fields in which an outcome differs from its record. Only ids that are text are compared."""
_WENT_ON: Final = f"(outcome.end IN {quoted(HOP_OUTCOMES)} OR {WAS_MOVED})"
_HAS_READ_ON: Final = (
    "read_to >= log_end"
    f" AND NOT coalesce({WAS_MOVED} AND outcome.next_offset >= next_offset, false)"
)
"""Whether the audit must have read the successor, or the move that took the record's place."""
OUTCOME_RULES: Final = rules(f"""
- contradicted: its outcome is {{outcome.end}}: {{{_WHY_NO_OUTCOME}}}
  if NOT {_POSSIBLE}
- contradicted: it says missed, but the record that it names, at offset {{named.offset}},\
 {{{_HOW}}} {{named.ended_ms - outcome.at_ms}} ms later
  if {_SAYS_MISSED} AND {_IS_IGNORED}
- contradicted: it says missed, but the record that it names, at offset {{named.offset}},\
 is still pending
  if {_SAYS_MISSED} AND {_IS_STILL_PENDING}
- contradicted: {{{_WRONG_REASON}}}
  if {_WRONG_REASON} IS NOT NULL
- altered: its outcome is {{outcome.end}} with a different {{{_SAYS_OTHER}}}
  if {_SAYS_OTHER} != ''
- pending: {{letters_unseen.why}}
  if {_LACKS_LETTER} AND letters_unseen.is_open
- unverifiable: {{outcome.end}}, but its dead letter is not seen: {{letters_unseen.why}}
  if {_LACKS_LETTER} AND {_LETTER_GONE}
- contradicted: {{outcome.end}}, but it has no dead letter
  if must_have_ended AND {_LACKS_LETTER}
- pending: its dead letter was not yet written
  if {_LACKS_LETTER}
- contradicted: its outcome is {{outcome.end}}, but it has a dead letter
  if letters > 0 AND NOT {_IS_DEAD_LETTERED}
- duplicated: it has {{letters}} dead letters
  if letters > 1
- contradicted: {{{_WRONG_CODE}}}
  if {_WRONG_CODE} IS NOT NULL
- altered: its dead letter has different content
  if {_LETTER_ALTERED}
- missing: {{outcome.end}}, but it has no successor
  if {_WENT_ON} AND successors = 0 AND {_HAS_READ_ON}
- pending: its successor was not yet read
  if {_WENT_ON} AND successors = 0
- duplicated: {{outcome.end}}, and it has {{successors}} successors
  if {_WENT_ON} AND successors > 1
- altered: its successor at offset {{successor}} has a different {{changed_in}}
  if {_WENT_ON} AND changed_in != ''
- its outcome: {{outcome.detail}}
  if true
""")
"""The rules are in order. The last rule holds for every record with an outcome."""
