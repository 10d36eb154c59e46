"""Command lines of the jobs: times, errors, limits, and the options passed on by `audit`."""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import typer

from proxy.cli.app import main as proxy_command
from spark_jobs import arguments, audit_delivery
from spark_jobs.arguments import epoch_ms, offset_ranges, readable_errors
from spark_jobs.audit_scope import LatenessLimits
from spark_jobs.histories.job import AuditJob
from spark_jobs.kafka.snapshot import LAST_OFFSET, OffsetRange, OwnTopics, Selection
from spark_jobs.results.summary import Audited, Summary
from spark_jobs.runtime.errors import TopicMissing
from spark_jobs.runtime.frames import location

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    "text", ["1767258000250", "2026-01-01T09:00:00.250Z", "2026-01-01T10:00:00.250+01:00"]
)
def test_times_are_epoch_milliseconds_or_have_a_zone(text: str) -> None:
    assert epoch_ms(text) == 1_767_258_000_250


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s ago", 45), ("90m ago", 5_400), ("1h ago", 3_600), ("2d ago", 172_800)],
)
def test_times_may_lie_so_long_before_now(text: str, seconds: int) -> None:
    before_ms = time.time_ns() // 1_000_000 - seconds * 1_000
    assert before_ms <= epoch_ms(text) <= time.time_ns() // 1_000_000 - seconds * 1_000 + 1


@pytest.mark.parametrize("text", ["2026-01-01T09:00:00", "yesterday", "-5", "", "1h", "an 1h ago"])
def test_times_that_could_mean_two_things_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="neither"):
        epoch_ms(text)


@pytest.mark.parametrize(
    ("text", "span"), [("3:100-199", (100, 200)), ("3:7", (7, 8)), ("3:7-", (7, LAST_OFFSET))]
)
def test_offsets_are_a_range_or_one_or_all_from_there_on(text: str, span: OffsetRange) -> None:
    assert offset_ranges([text, "0:0"]) == {3: span, 0: (0, 1)}


@pytest.mark.parametrize("text", ["", "3", "3:", "3:-5", ":4", "3:9-8", "3:1-2-3", "x:1", "3: 1"])
def test_what_is_no_range_of_offsets_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 3:100-199"):
        offset_ranges([text])
    with pytest.raises(typer.BadParameter, match="named twice"):
        offset_ranges(["3:1", "3:2"])


def test_error_is_told_in_sentences_and_ends_with_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended, readable_errors():
        raise TopicMissing("The topic x does not exist.", "Create it.")
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == "Error: The topic x does not exist. Create it.\n"


def test_limits_of_lateness_are_for_all_targets_or_for_some() -> None:
    assert arguments.limits(()) == LatenessLimits()
    found = arguments.limits(["7", "orders-?=2m", "orders=1h"])
    assert found == LatenessLimits(7, (("orders-?", 120_000), ("orders", 3_600_000)))
    for wrong in (["soon"], ["2 s"], ["=2s"], ["-1s"], ["2s", "3s"]):
        with pytest.raises(typer.BadParameter):
            arguments.limits(wrong)


SETTINGS = """
kafka: {bootstrap.servers: "here:9092", sasl.password: secret}
group_id: our-proxy
topics: {ingress: later, dead_letters: dead, outcomes: ends, settings: rules}
"""


@pytest.mark.parametrize(
    ("violations", "not_judged", "exit_code"), [(0, {}, 0), (3, {"so": 1}, 2), (0, {"so": 1}, 3)]
)
def test_the_proxys_command_has_the_job_audit_what_its_settings_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    violations: int,
    not_judged: dict[str, int],
    exit_code: int,
) -> None:
    audited = Audited("here:9092", "later", 1, ())
    found = Summary({"delivered": 1}, violations, {}, {}, 0, 0, 1, not_judged, audited)
    audit = MagicMock(return_value=found)
    monkeypatch.setattr(audit_delivery, "audit", audit)
    broker = MagicMock(topics=MagicMock(return_value={}))
    monkeypatch.setattr(audit_delivery, "Broker", MagicMock(return_value=broker))
    monkeypatch.setattr(audit_delivery, "job_session", MagicMock())
    monkeypatch.setattr(os, "execve", in_this_process(monkeypatch))
    (tmp_path / "proxy.yaml").write_text(SETTINGS)
    settings = ["--config", str(tmp_path / "proxy.yaml")]
    asked = ["--output", str(tmp_path / "out"), "--target", "a*", "--target", "b", "--at", "7"]
    asked += ["--max-lateness", "2s", "--max-lateness", "a*=500ms"]
    with pytest.raises(SystemExit) as ended:
        proxy_command(["audit", *settings, *asked, "--since", "5", "--json"])
    assert ended.value.code == exit_code
    _spark, job, selection = audit.call_args.args
    assert isinstance(job, AuditJob)
    assert job.kafka.bootstrap == "here:9092"
    assert job.kafka.librdkafka["sasl.password"] == "secret"
    assert (job.group, job.own) == ("our-proxy", OwnTopics("later", "dead", "ends", "rules"))
    assert (job.targets, job.output) == (["a*", "b"], location(tmp_path / "out"))
    assert selection == Selection(7, 5, None)
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["violations"], told["not_judged"]) == (violations, not_judged)
    assert job.limits == LatenessLimits(2_000, (("a*", 500),))


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    def run(program: str, command: list[str], env: Mapping[str, str]) -> None:
        assert program == sys.executable
        assert command[:3] == [program, "-m", "spark_jobs.audit_delivery"]
        monkeypatch.setattr(sys, "argv", command[2:])
        for name, text in env.items():
            monkeypatch.setenv(name, text)
        arguments.run(audit_delivery.main)

    return MagicMock(side_effect=run)
