"""The demo ends with the audit's verdicts, and holds only if they do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from proxy.cli.trial.demo import audit_process
from proxy.cli.trial.demo.audit_process import Audited, AuditFailed, AuditProcess
from proxy.cli.trial.demo.command import AUDIT_COLUMNS, _say_audit, summary
from proxy.cli.trial.demo.group_result import GroupResult
from proxy.config.settings import Settings

EXPECTED = {"delivered": 3, "dead_lettered": 1}
GOOD = Audited({**EXPECTED, "pending": 0, "missing": 0}, {}, EXPECTED)
BAD = Audited({"delivered": 3, "missing": 2}, {"missing": 2}, EXPECTED)
MISSED_TWO = json.dumps(
    {"verdicts": BAD.verdicts, "violations": 2, "violations_by": {"missing": 2}}
)


def audit_that_says(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> AuditProcess:
    """An audit with another program in the place of Spark."""
    command = [sys.executable, "-c", program]
    monkeypatch.setattr(audit_process, "audit_command", lambda *_: (command, dict(os.environ)))
    return AuditProcess(Settings(), folder)


@pytest.mark.parametrize(
    ("audited", "held"),
    [
        (GOOD, True),
        (BAD, False),
        (Audited({**EXPECTED, "pending": 1}, {}, EXPECTED), False),
        (Audited({**EXPECTED, "unverifiable": 1}, {}, EXPECTED), False),
        (Audited({**EXPECTED, "altered": 1}, {"altered": 1}, EXPECTED), False),
        (Audited({"delivered": 4}, {}, EXPECTED), False),
        (Audited({"delivered": 3}, {}, EXPECTED), False),
    ],
)
def test_the_demo_holds_only_if_the_audit_saw_each_end_that_is_planned_and_no_violation(
    audited: Audited, held: bool
) -> None:
    assert audited.held is held
    assert summary({}, GroupResult(), audited)["held"] is held
    assert summary({}, GroupResult(missing=1), audited)["held"] is False


def test_only_verdicts_that_were_given_are_shown_and_all_are_counted() -> None:
    assert GOOD.rows() == [["delivered", "3", "0"], ["dead lettered", "1", "0"], ["all", "4", "0"]]
    assert BAD.rows()[1:] == [["missing", "2", "2"], ["all", "5", "2"]]
    assert all(len(row) == len(AUDIT_COLUMNS) for row in BAD.rows())


def test_the_verdicts_are_read_from_the_last_line_whatever_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"print('chatter'); print({MISSED_TWO!r}); raise SystemExit(2)"
    with audit_that_says(monkeypatch, tmp_path, program) as audit:
        audit.start()
        assert _say_audit(audit, EXPECTED) == BAD
    told = capsys.readouterr().out
    assert "missing               2        2\n" in told
    assert "0 records are dead lettered, the plan expects 1.\n" in told


def test_an_audit_that_cannot_be_made_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = "import sys; sys.exit('Error: No Java here.')"
    with audit_that_says(monkeypatch, tmp_path, program) as audit:
        audit.start()
        with pytest.raises(AuditFailed, match="could not be made: Error: No Java here"):
            audit.result(EXPECTED)


def test_an_audit_under_way_ends_with_the_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with audit_that_says(monkeypatch, tmp_path, "import time; time.sleep(600)") as audit:
        audit.start()
    with pytest.raises(AuditFailed):
        audit.result(EXPECTED)


def test_without_spark_the_demo_says_how_to_get_the_audit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _say_audit(None, EXPECTED) is None
    assert "pip install 'kafka-delay-proxy[spark]'" in capsys.readouterr().out
    assert summary({}, GroupResult(), None)["held"] is True
