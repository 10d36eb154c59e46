"""Audits with one rule of verdicts, or one condition of a rule, switched off. An operator notices
this if the record with its fault gets another verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.frames import Materialise, location, materialising
from spark_jobs.verdicts import evaluation, requests, rules
from spark_jobs.verdicts.cross_checks import contradicted
from spark_jobs.verdicts.evaluation import out_of_order
from spark_jobs.verdicts.rules import MUST_HAVE_ENDED, Rule
from tools.campaign.campaign import Chunk, relative, run_of
from tools.campaign.judging import MODES, Prepared, Said, Verdicts, judged
from tools.campaign.rows_of_topics import Laid, laid_out
from tools.campaign.sight import SIGHTS

BRANCH: Final = re.compile(r"\bWHEN\b(.*?)\bTHEN\b(.*?)(?=\bWHEN\b|\bELSE\b|\bEND\b)", re.DOTALL)
NOTHING: Final = "CAST(NULL AS string)"
CHAINS: Final = MODES[1:]
"""Modes in which audits continue one another."""


class RuleOff(NamedTuple):
    """Result with a rule switched off. `noticed_by` lists the operators in whose runs a verdict
    changed. `seen` names the view (SIGHTS) or mode (CHAINS) in which it changed."""

    name: str
    noticed_by: list[str]
    seen: str | None


class Change(NamedTuple):
    name: str
    target: Any
    attribute: str
    value: Any


def parts() -> list[Change]:
    """Return changes that disable each condition within rules, and each cross-check."""
    return [
        *_afterwards(),
        *_parts("delivery of another", rules._CHANGED),
        *_parts("outcome of another", rules._SAYS_OTHER),
        *_branches("possible outcome", rules._POSSIBLE, "true"),
        *_branches("excuse", rules._WRONG_REASON, NOTHING),
        *_branches("code", rules._WRONG_CODE, NOTHING),
        *_hop_parts(),
        *_must_have_ended(),
    ]


ALL_THAT_HOLD: Final = "named_struct('verdict', ({0}).verdict, 'detail', concat({1}, '|', {2}))"
_OUTCOME: Final = "coalesce(replace(outcome.end, '-', '_'), 'none')"


def _ruling_with_all() -> str:
    numbers = [f"IF({rule.holds}, '{n}', NULL)" for n, rule in enumerate(evaluation.RULES)]
    listed = f"concat_ws(',', {', '.join(numbers)})"
    return ALL_THAT_HOLD.format(evaluation.RULING, _OUTCOME, listed)


def _verdict_without(said: Said, number: int) -> str:
    outcome, _, listed = said.detail.partition("|")
    if not listed:
        return said.verdict
    rest = [int(one) for one in listed.split(",") if int(one) != number]
    return evaluation.RULES[rest[0]].verdict or outcome if rest else "none"


def _rules(
    chunk: Chunk, at_hand: Mapping[str, Prepared], whole: Laid, folder: Path, keep: Materialise
) -> list[RuleOff]:
    """Return the result without each rule. One audit notes all rules that match a record. This
    list gives the verdict that the record would get without one of the rules."""
    with patch.object(evaluation, "RULING", _ruling_with_all()):
        full = {sight: one.judged(keep) for sight, one in at_hand.items()}
        full |= {mode: judged(whole, mode, folder / mode) for mode in CHAINS}
    return [_without_rule(chunk, number, full) for number in range(len(evaluation.RULES))]


def _without_rule(chunk: Chunk, number: int, full: Mapping[str, Verdicts]) -> RuleOff:
    name = f"rule {number}: {_title(evaluation.RULES[number])}"
    for sight, found in full.items():
        differ = [o for o, said in found.items() if _verdict_without(said, number) != said.verdict]
        if differ:
            return RuleOff(name, _noticing(chunk, differ), sight)
    return RuleOff(name, [], None)


def _title(rule: Rule) -> str:
    detail = re.sub(r"\s+", " ", re.sub(r"\{.*?\}+", "…", rule.detail, flags=re.DOTALL))
    return f"{rule.verdict or 'its outcome'}, {detail or rule.holds}"[:100]


def _parts(what: str, of: str) -> Iterator[Change]:
    """Yield a change for each name in `concat_ws(', ', IF(…, NULL, 'name'), …)`."""
    for found in re.finditer(r"IF\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", of):
        name = re.findall(r"'([^']*)'", found[0])[-1]
        if "NULL" not in found[0] or name == "EITHER":
            continue
        changed = evaluation.RULING.replace(of, of.replace(found[0], NOTHING))
        if changed != evaluation.RULING:
            yield Change(f"{what} {name}", evaluation, "RULING", changed)


def _branches(what: str, of: str, then: str) -> Iterator[Change]:
    for found in BRANCH.finditer(of):
        when = f" WHEN{found[1]}THEN {then} "
        changed = of[: found.start()] + when + of[found.end() :]
        title = re.sub(r"\s+", " ", found[1]).strip()[:80]
        yield Change(
            f"{what}: {title}", evaluation, "RULING", evaluation.RULING.replace(of, changed)
        )


def _hop_parts() -> Iterator[Change]:
    for name in (*requests.SAME, "timer-first-origin"):
        pattern = re.compile(rf"IF\([^()]*(?:\([^()]*\)[^()]*)*, NULL, '{name}'\)")
        kind, changed_in = requests.HOPS["changed_in"]
        columns = {**requests.HOPS, "changed_in": (kind, pattern.sub(NOTHING, changed_in))}
        yield Change(f"successor with another {name}", requests, "HOPS", columns)


def _must_have_ended() -> Iterator[Change]:
    of = MUST_HAVE_ENDED
    for found in BRANCH.finditer(of):
        changed = f"{of[: found.start()]} WHEN{found[1]}THEN false {of[found.end() :]}"
        title = re.sub(r"\s+", " ", found[1]).strip()[:80]
        yield Change(f"must have ended: {title}", evaluation, "MUST_HAVE_ENDED", changed)


def _afterwards() -> Iterator[Change]:
    def but(about: str) -> Callable[[DataFrame, set[str], DataFrame], list[DataFrame]]:
        return lambda doubts, kinds, sighted: contradicted(doubts, kinds - {about}, sighted)

    for about in ("order", "size", "missed"):
        yield Change(f"cross-check: {about}", evaluation, "contradicted", but(about))
    nothing: Callable[[DataFrame], DataFrame] = lambda found: out_of_order(found).limit(0)  # noqa: E731
    yield Change("check-backs", evaluation, "wrong_checks", lambda *_: [])
    yield Change("order of delivery", evaluation, "out_of_order", nothing)


@contextmanager
def disabled(one: Change) -> Iterator[None]:
    with patch.object(one.target, one.attribute, one.value):
        yield


def without_each_rule(
    spark: SparkSession, chunk: Chunk, say: Callable[[str], None], *, with_parts: bool
) -> list[RuleOff]:
    with (
        TemporaryDirectory(prefix="audit-campaign-") as place,
        materialising(spark, location(place)) as keep,
    ):
        at_hand = {
            sight: Prepared(spark, chunk.runs, sight, Path(place) / sight, keep) for sight in SIGHTS
        }
        folder = Path(place)
        laid = laid_out(spark, chunk.runs, folder / "topics")
        found = _rules(chunk, at_hand, laid, folder, keep)
        for one in found:
            say(f"{one.name}: {', '.join(one.noticed_by[:3])} ({one.seen})")
        if with_parts:
            whole = {"whole": at_hand["whole"]}
            full = {sight: one.judged(keep) for sight, one in whole.items()}
            for part in parts():
                found.append(_without(part, chunk, whole, full, keep))
                say(f"{part.name}: {', '.join(found[-1].noticed_by[:3])}")
    return found


def _without(
    one: Change,
    chunk: Chunk,
    at_hand: Mapping[str, Prepared],
    full: Mapping[str, Verdicts],
    keep: Materialise,
) -> RuleOff:
    for sight, expected in full.items():
        with disabled(one):
            said = at_hand[sight].judged(keep)
        if noticed := _noticed(chunk, expected, said):
            return RuleOff(one.name, noticed, sight)
    return RuleOff(one.name, [], None)


def _noticed(chunk: Chunk, expected: Verdicts, said: Verdicts) -> list[str]:
    differ = [
        origin
        for origin in {**expected, **said}
        if (a := expected.get(origin)) is None
        or (b := said.get(origin)) is None
        or a.verdict != b.verdict
    ]
    return _noticing(chunk, differ)


def _noticing(chunk: Chunk, differ: Iterable[str]) -> list[str]:
    """Return operators whose planted record got another verdict, then those whose run has any
    other change."""
    operators = {one.contents.run: one for one in chunk.faulty}
    own, others = dict[str, None](), dict[str, None]()
    for origin in differ:
        faulty = operators.get(run_of(origin))
        if faulty is None:
            others["a run without a fault"] = None
        elif relative(origin) in map(relative, faulty.planted.expected):
            own[faulty.operator.name] = None
        else:
            others[f"a run of {faulty.operator.name}"] = None
    return [*own, *others]
