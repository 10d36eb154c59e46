"""The rules name existing verdicts, outcomes and kinds of records, without Spark."""

import re

import pytest

from spark_jobs.histories.ends import OUTCOMES
from spark_jobs.requests.parsing import KINDS
from spark_jobs.verdicts.evaluation import NEEDS_OTHERS, RULES, RULING
from spark_jobs.verdicts.generations import STEPS
from spark_jobs.verdicts.requests import IS_HOP
from spark_jobs.verdicts.rules import MUST_HAVE_ENDED, differences, sentence
from spark_jobs.verdicts.verdict_names import DESCRIPTIONS, SOUND, VIOLATIONS

COMPARED = re.compile(r"(named\.end|\bend|kind) (?:=|!=|IN|NOT IN) (\([^)]*\)|'[^']*')")
KNOWN = {"end": OUTCOMES, "named.end": (*OUTCOMES, "delivered"), "kind": KINDS}
"""`named` is a member of a generation (`id_generations`): without an outcome it was delivered."""
STEPS_SQL = " ".join(sql for step in STEPS for sql in step.values())


def test_every_verdict_of_a_rule_has_a_meaning_and_every_outcome_is_a_verdict() -> None:
    assert {rule.verdict for rule in RULES if rule.verdict} <= DESCRIPTIONS.keys()
    assert {name.replace("-", "_") for name in OUTCOMES} <= SOUND.keys()
    assert not SOUND.keys() & VIOLATIONS.keys()


@pytest.mark.parametrize(
    "sql",
    [RULING, MUST_HAVE_ENDED, NEEDS_OTHERS, IS_HOP, STEPS_SQL],
    ids=["ruling", "must have ended", "needs others", "hops", "generations"],
)
def test_rules_compare_with_outcomes_and_kinds_that_there_are(sql: str) -> None:
    compared = [
        (field, name)
        for field, names in COMPARED.findall(sql)
        for name in re.findall(r"'([^']*)'", names)
    ]
    assert compared
    assert not [(field, name) for field, name in compared if name not in KNOWN[field]]


def test_only_the_last_rule_takes_the_name_of_the_outcome() -> None:
    assert [rule.verdict for rule in RULES].index(None) == len(RULES) - 1


def test_sentence_has_its_values_in_their_places_and_is_null_without_text() -> None:
    assert sentence("") == "CAST(NULL AS string)"
    assert sentence("{outcome.detail}") == "CAST(outcome.detail AS string)"
    assert sentence("it has {letters} dead letters") == (
        "concat('it has ', coalesce(CAST(letters AS string), 'nothing'), ' dead letters')"
    )
    with pytest.raises(AssertionError, match="neither quotes"):
        sentence("it's not there")


def test_differences_are_named_in_order() -> None:
    pairs = {"key": ("a.key", "b.key"), "value": ("a.value", "b.value")}
    assert differences(pairs) == (
        "concat_ws(', ', IF(a.key <=> b.key, NULL, 'key'), IF(a.value <=> b.value, NULL, 'value'))"
    )
