"""The rules that a record can break, each once."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from spark_jobs.circumstances import DROP, USUAL_MS
from spark_jobs.evidence.ends import HOP_OUTCOMES, IS_SHED
from spark_jobs.evidence.open_records import IS_MOVE, MISSED_ITS_PLACE, MOVED, WAS_MOVED
from spark_jobs.records.hashes import text_key_number
from spark_jobs.records.headers import DUE, FIRST_ORIGIN, ORIGIN
from spark_jobs.requests.controls import CONTROLS, TAKE_BACK
from spark_jobs.verdicts import verdict_names as verdict
from spark_jobs.verdicts.verdict_names import ALTERED, CONTRADICTED, DELIVERED, EARLY, LATE, OVERDUE

# How rules are written down: SQL over the columns of a record's history, the first that holds.

VALUE: Final = re.compile(r"\{(.*?)\}", re.DOTALL)


class Rule(NamedTuple):
    """Where `holds` (SQL), the verdict is this; `detail` is the `sentence` for a person.

    No verdict: the name of the record's outcome is the verdict.
    """

    verdict: str | None
    holds: str
    detail: str = ""


def ruling(rules: Iterable[Rule]) -> str:
    """SQL of the struct of verdict and detail by the first of the rules that holds."""
    return f"CASE {' '.join(map(_when, rules))} END"


def sentence(text: str) -> str:
    """SQL of a text in which each `{sql}` stands for a value; null for an empty text."""
    literal, *more = VALUE.split(text)
    if more[1:] == [""] and not literal:
        return f"CAST({more[0]} AS string)"
    parts = [_quoted(literal)]
    for value, after in zip(more[::2], more[1::2], strict=True):
        parts += [f"coalesce(CAST({value} AS string), 'nothing')", _quoted(after)]
    return f"concat({', '.join(parts)})" if text else "CAST(NULL AS string)"


def differences(pairs: Mapping[str, tuple[str, str]]) -> str:
    """SQL of the names of those pairs that differ, apart by commas; empty if none does."""
    parts = [f"IF({one} <=> {other}, NULL, '{name}')" for name, (one, other) in pairs.items()]
    return f"concat_ws(', ', {', '.join(parts)})"


def names(of: Iterable[str]) -> str:
    """The names as SQL has them behind IN."""
    return f"({', '.join(map(_quoted, of))})"


def _when(rule: Rule) -> str:
    verdict = _quoted(rule.verdict) if rule.verdict else "replace(outcome.end, '-', '_')"
    found = f"named_struct('verdict', {verdict}, 'detail', {sentence(rule.detail)})"
    return f"WHEN {rule.holds} THEN {found}"


def _quoted(text: str) -> str:
    assert not {"'", "\\"} & {*text}, "a text in a rule has neither quotes nor backslashes"
    return f"'{text}'"


# Rules for what came too late, and for what is due and has not come at all.
#
# Late is measured from the due, or from when the record could first have been delivered: when its
# first origin was written, or it was moved to another due, or its half message was decided. What
# held it up, such as a target that is paused, is no excuse.

_WRITTEN_MS: Final = "IF(request.timestamp_ms < 0, NULL, request.timestamp_ms)"
DUE_FROM_MS: Final = f"""
CASE WHEN request.kind = 'record'
    THEN greatest(request.due_ms, coalesce(first_ms, {_WRITTEN_MS}))
  WHEN request.kind = 'prepare' AND decision.kind = 'commit'
    THEN greatest(request.due_ms, {_WRITTEN_MS}, decision.timestamp_ms)
  WHEN request.kind = 'prepare' THEN coalesce(decision.timestamp_ms, request.expires_ms)
  WHEN request.kind IS NOT NULL THEN {_WRITTEN_MS} END
"""
"""SQL: from when on the record could end as it asked, epoch ms; null where that is not known."""
LATENESS_MS: Final = f"(delivery.at_ms - ({DUE_FROM_MS}))"
OVERDUE_MS: Final = f"""
IF(deliveries = 0 AND outcomes = 0 AND NOT must_have_ended AND at_ms >= ({DUE_FROM_MS}),
  at_ms - ({DUE_FROM_MS}), NULL)
"""
"""SQL: for how long it has been due, of a record that has not ended; else null."""
_ASKED_MS: Final = """
coalesce(get(filter(lateness_limits, limit -> request.target RLIKE limit.targets), 0).max_ms,
  most_late_ms)
"""
"""How late it may be; null where nobody asked."""
IS_LATE: Final = f"""
coalesce(coalesce({LATENESS_MS}, {OVERDUE_MS}) > coalesce({_ASKED_MS}, {USUAL_MS}), false)
"""
"""SQL: whether it came, or has not come, later than is allowed, or than is usual."""

LATE_RULE: Final = Rule(
    LATE,
    f"deliveries = 1 AND {LATENESS_MS} > {_ASKED_MS}",
    f"it arrived {{{LATENESS_MS}}} ms late, {{{_ASKED_MS}}} ms are allowed",
)
OVERDUE_RULE: Final = Rule(
    OVERDUE,
    f"NOT settled_only AND {OVERDUE_MS} > {_ASKED_MS}",
    f"it has been due for {{{OVERDUE_MS}}} ms, {{{_ASKED_MS}}} ms are allowed",
)
"""Where an audit goes on without end, what is overdue is no verdict: it may still end."""


# Rules for cancels and replacements that were ignored, by the order in which things were read.
#
# What an id's next record or cancel finds waiting as it is read, it ends. So a record does not
# wait after that, and was not delivered, but for records that were delivered in the same
# transaction (docs/guide.md#cancel-and-replace). A recall or move finds what it names, whatever
# its id.

TRANSACTION_MS: Final = 10_000
"""Within so long the records of one transaction are written."""
CLOCK_MS: Final = 5_000
"""So far the proxy's clock may be ahead of the broker's (the setting clock.max_step)."""


def delivered_after(delivered_ms: str, wanted_ms: str, read_ms: str) -> str:
    """SQL: whether a record was delivered though it still waited at `read_ms`: it came long after,
    or was not even due then."""
    return (
        f"({delivered_ms} > {read_ms} + {TRANSACTION_MS} OR {wanted_ms} > {read_ms} + {CLOCK_MS})"
    )


_AFTER: Final = delivered_after("named.delivered_ms", "named.wanted_ms", "outcome.at_ms")
_WAITED: Final = f"(named.delivered_ms IS NOT NULL AND {_AFTER})"
"""Whether what has the record's id waited as that was read, by when it was delivered."""
_IS_IGNORED: Final = f"({_WAITED} OR named.ended_ms > outcome.at_ms + {TRANSACTION_MS})"
_HOW: Final = "IF(named.delivered_ms IS NULL, concat('ended as ', named.end), 'was delivered')"
_SAYS_MISSED: Final = f"""
(outcome.end = 'missed' AND offset < next_offset AND (request.kind IN {names(TAKE_BACK)}
  OR ({MISSED_ITS_PLACE} AND named.offset = request.hop_from)))
"""
IGNORED_CANCEL_RULE: Final = Rule(
    CONTRADICTED,
    f"{_SAYS_MISSED} AND {_IS_IGNORED}",
    "it says missed {named.ended_ms - outcome.at_ms} ms before the record that it names, at"
    f" offset {{named.offset}}, {{{_HOW}}}",
)
_WAITS_STILL: Final = """
(named.end = 'delivered' AND named.delivered_ms IS NULL AND named.wanted_ms > watermark_ms
  AND prev_opener.offset <= named.offset AND named.is_seen)
"""
"""Whether what has the record's id has no end, and by the committed position has not fired."""
WAITS_STILL_RULE: Final = Rule(
    CONTRADICTED,
    f"{_SAYS_MISSED} AND {_WAITS_STILL}",
    "it says missed; the record that it names, at offset {named.offset}, waits still",
)


# Rules for a record that was delivered once.

_HAS_HOPPED: Final = "(request.first_origin IS NOT NULL OR request.hop_from IS NOT NULL)"
TARGET_PARTITION: Final = (
    "coalesce(request.target_partition, request.key_number % target_partitions)"
)
"""SQL: the partition of its target to which a record belongs; null where any will do."""
_PARTITION: Final = f"CAST(coalesce({TARGET_PARTITION}, delivery.at_partition) AS int)"
"""Where the record belongs; where it is, when any partition will do."""
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
"""SQL: whether the log of the ingress allows that the record was delivered."""
_OVERTAKEN: Final = sentence(
    "{IF(overtaken_by.kind = 'purge', 'a purge that means it', 'a record or cancel with its id')},"
    " at offset {overtaken_by.offset}, came while it was rewritten"
)
_WHY_NOT: Final = f"""
CASE WHEN overtaken_by IS NOT NULL THEN {_OVERTAKEN}
  WHEN request.kind = 'refused' THEN {sentence("it is to be refused ({request.code})")}
  WHEN request.kind = 'prepare' THEN 'nobody has committed this half message'
  ELSE 'it is a control record' END
"""
_TOO_SOON_MS: Final = "request.wanted_ms - delivery.at_ms"
_CHANGED: Final = differences(_EXPECTED)

DELIVERY_RULES: Final = (
    Rule(
        CONTRADICTED,
        f"deliveries = 1 AND NOT {MAY_BE_DELIVERED}",
        f"it was delivered: {{{_WHY_NOT}}}",
    ),
    Rule(
        CONTRADICTED,
        "deliveries = 1 AND letters > 0",
        "it was delivered, and there is a dead letter of it",
    ),
    Rule(ALTERED, f"deliveries = 1 AND {_CHANGED} != ''", f"it arrived with other {{{_CHANGED}}}"),
    Rule(
        EARLY,
        f"deliveries = 1 AND {_TOO_SOON_MS} > 0",
        f"it arrived {{{_TOO_SOON_MS}}} ms before its due",
    ),
    Rule(
        EARLY,
        f"deliveries = 1 AND request.wanted_ms > seen_ms + {CLOCK_MS}",
        "it was there {request.wanted_ms - seen_ms} ms before its due, whatever time it claims",
    ),
    LATE_RULE,
    Rule(DELIVERED, "deliveries = 1"),
)
"""In order; the last holds for every record that was delivered once."""


# Which records must have ended, by the committed offsets alone.
#
# See docs/exactly-once.md#1-when-a-record-has-ended: the record at offset x that fires at d has
# ended if x < O and (d, x) <= (T, C). What a later record with its id superseded, and what was
# superseded while it was in mid-hop, has ended as that was ingested, and so has what a later
# record took the place of. Control records, moves that came too late, what is refused and what
# found no room to wait (with an older version) end as they are ingested.


def _ingested(offset: str) -> str:
    return f"coalesce({offset} < next_offset, false)"


def _passed(time_ms: str, entry_offset: str) -> str:
    return (
        f"({time_ms} <= at_ms AND ({time_ms} < watermark_ms"
        f" OR ({time_ms} = watermark_ms AND {entry_offset} <= cursor)))"
    )


def _fired(entry_offset: str) -> str:
    """A half message fires by its due, under the offset of the commit."""
    return _passed("request.fires_ms", entry_offset)


_SUPERSEDED: Final = f"""
({_ingested("next_opener.offset")}
  AND (next_opener.kind != 'purge' OR outcome.end = 'cancelled'))
"""
"""What a purge ends may get its outcome later, at the latest by its due."""
_OVERDUE_HALF: Final = f"(next_opener IS NULL AND {_passed('request.expires_ms', 'offset')})"
"""Once its time has passed the proxy writes that it expires, and ends it as it reads that: if what
has its id was written before, only as it reads that."""

_BY_A_MOVE: Final = f"""
({_ingested("offset")} AND ({MISSED_ITS_PLACE}
  OR ({WAS_MOVED} AND {_ingested("outcome.next_offset")})))
"""

MUST_HAVE_ENDED: Final = f"""
coalesce(CASE
  WHEN request IS NULL THEN false
  WHEN {_BY_A_MOVE} THEN true
  WHEN {IS_SHED} THEN {_ingested("offset")}
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
"""SQL over a record's history: whether the committed position says that it has ended."""


# Which records may have ended where an audit cannot see it: in the very partition, and at a time,
# of which it did not see everything (`evidence.unseen`).
#
# An end leaves more than one trace: a dead letter has an outcome, a record that goes on has a
# successor in the ingress, what was taken back has a record or cancel that did it. So an outcome
# that is unseen explains only ends of which nothing else would be left.

IS_ENDLESS: Final = "(must_have_ended AND deliveries = 0 AND outcomes = 0)"
"""SQL: whether nothing shows how a record ended that has."""


def unseen_outcome(offset: str) -> str:
    """SQL: what is unseen of the outcome topic, where the outcome of this offset would lie."""
    origin = f"concat(ingress_topic, '/', partition, '/', {offset})"
    number = f"CAST({text_key_number(origin)} % size(outcomes_unseen) AS int)"
    return f"get(outcomes_unseen, IF(size(outcomes_unseen) = 1, 0, {number}))"


_AT_TARGET: Final = f"""
CASE WHEN {TARGET_PARTITION} IS NULL THEN array_max(target_unseen)
  ELSE get(target_unseen, CAST({TARGET_PARTITION} AS int)) END
"""
"""Where the record was to be delivered; without a key that may be anywhere."""
_MAY_BE_DROPPED: Final = f"""
(overdue_rules IS NULL OR request.wanted_ms < overdue_known_ms OR exists(overdue_rules,
  rule -> rule.action = '{DROP}' AND request.target RLIKE rule.targets))
"""
_OUTCOME_ALONE_FROM_MS: Final = f"""
least(
  IF(request.kind IN {names(CONTROLS)}, request.timestamp_ms, NULL),
  IF(overtaken_by IS NOT NULL, request.timestamp_ms, NULL),
  IF(next_opener.offset < next_offset, next_opener.timestamp_ms, NULL),
  IF(request.kind = 'prepare' AND decision.kind = 'rollback', decision.timestamp_ms, NULL),
  IF(successors > 0, went_on_ms, NULL),
  IF({IS_MOVE}, request.timestamp_ms, NULL),
  IF({_MAY_BE_DROPPED}, request.wanted_ms, NULL))
"""
"""From when on it may have ended with an outcome of which nothing else is left to be seen; null:
every end of it that has an outcome leaves more."""
_UNSEEN_END: Final = f"""
CASE WHEN {MAY_BE_DELIVERED} AND unseen_at_target.until_ms >= request.wanted_ms
    THEN unseen_at_target
  WHEN unseen_outcome.until_ms >= {_OUTCOME_ALONE_FROM_MS} THEN unseen_outcome
  WHEN least(unseen_outcome.until_ms, letters_unseen.until_ms) >= request.timestamp_ms
    AND unseen_outcome IS NOT NULL AND letters_unseen IS NOT NULL THEN unseen_outcome END
"""
STEPS: Final = (
    {
        "unseen_at_target": f"IF({IS_ENDLESS}, {_AT_TARGET}, NULL)",
        "unseen_outcome": f"IF({IS_ENDLESS} OR letters > 0, {unseen_outcome('offset')}, NULL)",
    },
    {"unseen_end": f"IF({IS_ENDLESS}, {_UNSEEN_END}, NULL)"},
)
"""What is added step by step."""


def with_unseen_ends(histories: DataFrame) -> DataFrame:
    """The histories with `unseen_outcome` and `unseen_end` (UNSEEN): where, and until when, its
    outcome, and its end, may lie unseen; null where neither can."""
    found = histories
    for step in STEPS:
        found = found.selectExpr("*", *[f"{sql} AS {name}" for name, sql in step.items()])
    return found


# Rules for any record: whether it can be judged at all, and whether it has one end.

_SUCCEEDS: Final = (
    f"request.hop_from >= known_from AND (request.kind = 'record' OR {IS_MOVE})"
    f" AND offset < next_offset AND NOT {MISSED_ITS_PLACE}"
)
"""Whether it says that it goes on from a record of which an audit knows how it ended."""
_HOP_FROM_OUTCOME: Final = unseen_outcome("from_offset")
_OUTCOME_UNSEEN: Final = (
    "came_from IS NULL AND outcomes_unseen IS NOT NULL"
    f" AND {_HOP_FROM_OUTCOME}.until_ms >= request.timestamp_ms"
)
_GOES_ON: Final = f"""
IF({IS_MOVE}, came_from <=> '{MOVED}', coalesce(came_from IN {names(HOP_OUTCOMES)}, false))
"""
_OWN_OUTCOME: Final = unseen_outcome("offset")
_MAY_HAVE_MISSED: Final = (
    f"{_SUCCEEDS} AND {IS_MOVE} AND NOT {_GOES_ON} AND deliveries = 0 AND outcomes = 0"
    f" AND letters = 0 AND {_OWN_OUTCOME}.until_ms >= request.timestamp_ms"
)
"""Whether it is to take a place that it has not, and may say so where that is not seen."""
_FROM: Final = "IF(came_from IS NULL, 'has no outcome', concat('ended as ', came_from))"

_NAMES_NOTHING: Final = """
IF(partition IS NULL, 'its timer-origin names no record',
  'the ingress never held a committed record there')
"""
RECORD_DELETED: Final = "the ingress has deleted the record"

KNOWN_RULES: Final = (
    Rule(
        verdict.UNVERIFIABLE,
        "request IS NULL AND offset < read_from",
        RECORD_DELETED,
    ),
    Rule(
        verdict.DUPLICATED,
        "request IS NULL AND offset < closed_to",
        "an earlier audit saw how it ended; this is one end more",
    ),
    Rule(verdict.ORPHANED, "request IS NULL", f"{{{_NAMES_NOTHING}}}"),
    Rule(
        verdict.UNVERIFIABLE,
        "request.kind IS NULL AND offset >= next_offset",
        "the proxy has not read it, and by which settings it will is not known",
    ),
    OVERDUE_RULE._replace(holds=f"offset >= next_offset AND {OVERDUE_RULE.holds}"),
    Rule(verdict.PENDING, "offset >= next_offset", "the proxy has not read it"),
    Rule(
        verdict.PENDING,
        f"{_SUCCEEDS} AND {_OUTCOME_UNSEEN} AND {_HOP_FROM_OUTCOME}.is_open",
        f"{{{_HOP_FROM_OUTCOME}.why}}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_SUCCEEDS} AND {_OUTCOME_UNSEEN}",
        "the outcome of offset {request.hop_from}, from which it goes on, was deleted",
    ),
    Rule(
        verdict.PENDING,
        f"{_MAY_HAVE_MISSED} AND {_OWN_OUTCOME}.is_open",
        f"{{{_OWN_OUTCOME}.why}}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        _MAY_HAVE_MISSED,
        f"whether it missed its place: {{{_OWN_OUTCOME}.why}}",
    ),
    Rule(
        verdict.CONTRADICTED,
        f"{_SUCCEEDS} AND NOT {_GOES_ON}",
        f"it goes on from offset {{request.hop_from}}, which {{{_FROM}}}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        "request.kind IS NULL",
        "the settings that judged it are not known any more",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        "request.is_blurred AND NOT coalesce(outcome.end = 'dead-lettered', false)",
        "the name of a header has U+FFFD, or bytes that are not UTF-8: Java shows both alike",
    ),
    Rule(verdict.PENDING, "settled_only AND NOT must_have_ended"),
)
"""Of what the ingress does not hold, what the proxy has not read, and what goes on from nothing."""

COUNT_RULES: Final = (
    Rule(
        verdict.CONTRADICTED,
        "deliveries > 0 AND outcomes > 0",
        "it was delivered, and its outcome is {outcome.end}",
    ),
    Rule(verdict.DUPLICATED, "deliveries > 1", "it was delivered {deliveries} times"),
    Rule(
        verdict.CONTRADICTED,
        "outcomes > 1 AND outcome.end != last_outcome",
        "its outcomes are {outcome.end} and {last_outcome}",
    ),
    Rule(verdict.DUPLICATED, "outcomes > 1", "it has {outcomes} outcomes"),
)

_NO_END: Final = "deliveries = 0 AND outcomes = 0"
_MAY_HAVE_GONE: Final = f"""
coalesce((successors > 0 OR next_opener.kind = 'purge')
  AND {_OWN_OUTCOME}.until_ms >= request.timestamp_ms, false)
"""
"""Whether a move, or a purge, may have ended it before its time, and that is not seen."""
ENDLESS_RULES: Final = (
    Rule(verdict.PENDING, f"{_NO_END} AND unseen_end.is_open", "{unseen_end.why}"),
    Rule(
        verdict.PENDING,
        f"{_NO_END} AND letters > 0 AND unseen_outcome.is_open",
        "{unseen_outcome.why}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_NO_END} AND letters > 0 AND unseen_outcome.until_ms >= letter.at_ms",
        "there is a dead letter of it, and no outcome: {unseen_outcome.why}",
    ),
    Rule(
        verdict.CONTRADICTED,
        f"{_NO_END} AND must_have_ended AND letters > 0",
        "there is a dead letter of it, and no outcome",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_NO_END} AND unseen_end IS NOT NULL",
        "it should have ended: {unseen_end.why}",
    ),
    Rule(
        verdict.MISSING,
        f"{_NO_END} AND must_have_ended",
        "the committed offsets say that it has ended; no topic shows how",
    ),
    OVERDUE_RULE._replace(holds=f"{OVERDUE_RULE.holds} AND NOT {_MAY_HAVE_GONE}"),
    Rule(verdict.PENDING, _NO_END),
)
"""Of records that were neither delivered nor have an outcome."""
