"""Rules about outcomes: whether each is possible and true."""

from typing import Final

from spark_jobs.audit_scope import DROP
from spark_jobs.histories.ends import (
    CONTROL_OUTCOMES,
    HOP_OUTCOMES,
    IS_MOVE,
    MISSED_ITS_PLACE,
    WAS_MOVED,
)
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
from spark_jobs.verdicts.generations import EITHER
from spark_jobs.verdicts.requests import NAMES_ONE, named_by
from spark_jobs.verdicts.rules import CLOCK_MS, MISSED_RULES, rules, sentence

NAMES_ID: Final = ("cancelled", "replaced", "rolled-back", *CONTROL_OUTCOMES)
"""These outcomes always name their record's id."""
_DROPPED: Final = "contains(outcome.detail, '(release.overdue)')"
"""Whether the setting release.overdue expired it. Then there is no dead letter."""
_MAY_FIRE: Final = "(request.kind = 'record' OR decision.kind = 'commit')"
_SUPERSEDED_BY: Final = "coalesce(overtaken_by, next_opener)"
"""The last opener in mid-hop, or else the next opener."""
_EXPECTED: Final = "IF(offset < next_offset, expected, NULL)"
"""The outcome that a control record must have, once its effects are surely committed."""
_MAY_BE_MOVED: Final = f"""
({_MAY_FIRE} AND overtaken_by IS NULL
  AND coalesce(next_opener.offset > outcome.next_offset, true)
  AND coalesce(successor = outcome.next_offset, true)
  AND coalesce(keeps_due = (outcome.end = 'requeued'), true))
"""
"""Whether a move can have taken its place: nothing had ended it before."""
_WAS_TAKEN_BACK: Final = """
coalesce(IF(request.kind = 'prepare', decision.kind = 'rollback' AND decision.offset < next_offset,
  request.kind = 'record' AND overtaken_by IS NOT NULL), false)
"""
"""Whether it never fired: it was rolled back, or taken back as it arrived."""
_BY_A_DEFECT: Final = f"coalesce(startswith(outcome.detail, '{DEFECT}: '), false)"
"""Whether the proxy failed at it, which is possible at any time."""
_POSSIBLE: Final = f"""
coalesce(CASE
  WHEN request.kind IN {quoted(CONTROLS)}
    THEN outcome.end = 'dead-lettered' OR (outcome.end IN {quoted(CONTROL_OUTCOMES)}
      AND coalesce({_EXPECTED}, '{EITHER}') IN ('{EITHER}', outcome.end))
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
Records that came in mid-hop may be deleted together with the rewritten record.
"""
_SUPERSEDING: Final = sentence(
    f"what next has its id is a {{{_SUPERSEDED_BY}.kind}} at offset {{{_SUPERSEDED_BY}.offset}}"
)
_NEXT_OF_ID: Final = f"""
IF({_SUPERSEDED_BY} IS NULL, 'no later record or cancel has its id', {_SUPERSEDING})
"""
_NEXT: Final = f"""
CASE WHEN {_SUPERSEDED_BY}.kind = 'purge'
    THEN {sentence(f"what ended it is the purge at offset {{{_SUPERSEDED_BY}.offset}}")}
  WHEN {NAMES_ONE} THEN concat({sentence("it says {outcome.detail}, which does not mean it; ")},
    {_NEXT_OF_ID})
  ELSE {_NEXT_OF_ID} END
"""
_WHY_NOT: Final = f"""
CASE WHEN expected IS NOT NULL THEN {sentence("it should say {expected}")}
  WHEN request.kind = 'refused' THEN {sentence("it is to be refused ({request.code})")}
  WHEN {WAS_MOVED} AND successor != outcome.next_offset
    THEN {sentence("what goes on from it is at offset {successor}")}
  WHEN {WAS_MOVED} AND keeps_due != (outcome.end = 'requeued')
    THEN {sentence("the due of offset {successor}, which goes on from it, speaks against that")}
  WHEN request.kind = 'prepare'
    THEN concat({sentence("what decided it is {decision.kind}")}, ', ', {_NEXT})
  ELSE {_NEXT} END
"""
_IS_BURIED: Final = f"""
(outcome.end = 'dead-lettered' OR (outcome.end = 'expired' AND NOT coalesce({_DROPPED}, false)))
"""
_LACKS_LETTER: Final = f"(letters = 0 AND {_IS_BURIED})"
_LETTER_GONE: Final = "coalesce(letters_unseen.until_ms >= outcome.at_ms, false)"
_WRONG_CODE: Final = f"""
CASE WHEN request.kind = 'refused' AND letter.code != request.code
    THEN {sentence("dead-lettered for {letter.code}, it is {request.code}")}
  WHEN request.kind != 'refused' AND letter.code IN {quoted(DECIDED_WHEN_READ)}
    THEN {sentence("dead-lettered for {letter.code}, nothing is wrong with it")}
  WHEN request.kind IN {quoted(CONTROLS)} AND letter.code != '{DEFECT}'
    THEN {sentence("dead-lettered for {letter.code}, which no {request.kind} can be")}
  WHEN outcome.end = 'dead-lettered' AND letter IS NOT NULL
    AND NOT coalesce(letter.code IN {quoted(OF_DEAD_LETTERED)}, false)
    THEN {sentence("dead-lettered for {letter.code}, which is no reason")}
  WHEN outcome.end = 'expired' AND letter IS NOT NULL
    AND NOT letter.code <=> '{TRANSACTION_EXPIRED}'
    THEN {sentence("it expired; its dead letter says {letter.code}")} END
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
    "it expired {request.expires_ms - outcome.at_ms} ms before its last check had passed"
)
_EXCUSE_WRONG: Final = f"""
CASE WHEN letter.code = 'body-gone' AND request.known_verdict IS NULL
    AND letter.at_ms < reading_from_ms
    THEN 'dead-lettered for body-gone; the ingress has the record still'
  WHEN letter.code IN {quoted(TRANSIENT)} AND {_FAILURES} < least_attempts
    THEN {_TOO_FEW}
  WHEN outcome.end = 'expired' AND decision.kind = 'expire'
    AND outcome.at_ms + {CLOCK_MS} < request.expires_ms
    THEN {_CHECKS_LEFT}
  WHEN NOT coalesce({_DROPPED} OR letter.code = '{OVERDUE}', false) THEN NULL
  WHEN outcome.at_ms < request.wanted_ms THEN {_NOT_DUE}
  WHEN outcome.at_ms >= overdue_known_ms AND NOT {_OVERDUE_BY_RULE}
    THEN {sentence("{outcome.end} as overdue; there was no such rule: {outcome.detail}")} END
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
"""A dead letter may omit the value, or all but origin and reason, if its outcome says so."""
_SAYS_OTHER: Final = f"""
concat_ws(' and ',
  IF((outcome.end NOT IN ('dead-lettered', 'applied', 'missed') OR {MISSED_ITS_PLACE})
    AND request.kind != 'refused' AND NOT (outcome.due_ms <=> request.due_ms)
    AND NOT (outcome.end IN ('cancelled', 'replaced') AND outcome.due_ms IS NULL), 'due', NULL),
  IF(is_valid_utf8(CAST(request.ident AS string)) AND NOT (outcome.ident <=> request.ident)
    AND (outcome.ident IS NOT NULL OR outcome.end IN {quoted(NAMES_ID)}), 'id', NULL))
"""
"""Differences between an outcome and its record. An id that is not text is not compared."""
_HOPS: Final = f"(outcome.end IN {quoted(HOP_OUTCOMES)} OR {WAS_MOVED})"
_HAS_READ_ON: Final = (
    "read_to >= log_end"
    f" AND NOT coalesce({WAS_MOVED} AND outcome.next_offset >= next_offset, false)"
)
"""Whether its successor, or the move that took its place, would have been read."""
OUTCOME_RULES: Final = (
    *rules(f"""
- contradicted: its outcome is {{outcome.end}}: {{{_WHY_NOT}}}
  if NOT {_POSSIBLE}
"""),
    *MISSED_RULES,
    *rules(f"""
- contradicted: {{{_EXCUSE_WRONG}}}
  if {_EXCUSE_WRONG} IS NOT NULL
- altered: its outcome is {{outcome.end}} with other {{{_SAYS_OTHER}}}
  if {_SAYS_OTHER} != ''
- pending: {{letters_unseen.why}}
  if {_LACKS_LETTER} AND letters_unseen.is_open
- unverifiable: {{outcome.end}}; its dead letter: {{letters_unseen.why}}
  if {_LACKS_LETTER} AND {_LETTER_GONE}
- contradicted: {{outcome.end}}, without a dead letter
  if must_have_ended AND {_LACKS_LETTER}
- pending: its dead letter was not there yet
  if {_LACKS_LETTER}
- contradicted: its outcome is {{outcome.end}}, and there is a dead letter of it
  if letters > 0 AND NOT {_IS_BURIED}
- duplicated: it has {{letters}} dead letters
  if letters > 1
- contradicted: {{{_WRONG_CODE}}}
  if {_WRONG_CODE} IS NOT NULL
- altered: its dead letter has other content
  if {_LETTER_ALTERED}
- missing: {{outcome.end}}, and nothing goes on from it
  if {_HOPS} AND successors = 0 AND {_HAS_READ_ON}
- pending: its successor was not read yet
  if {_HOPS} AND successors = 0
- duplicated: {{outcome.end}}, and {{successors}} records go on from it
  if {_HOPS} AND successors > 1
- altered: it went on at offset {{successor}} with other {{changed_in}}
  if {_HOPS} AND changed_in != ''
- its outcome: {{outcome.detail}}
  if true
"""),
)
"""In order. The last rule holds for every record with an outcome."""
