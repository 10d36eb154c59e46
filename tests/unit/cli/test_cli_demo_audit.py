"""The demo ends with the audit's verdicts, and holds only if they do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from proxy.cli.trial import demo_audit
from proxy.cli.trial.demo import AUDIT_COLUMNS, _say_audit, summary
from proxy.cli.trial.demo_audit import Audited, AuditFailed, AuditProcess
from proxy.cli.trial.demo_judge import Verdict
from proxy.config.settings import Settings

GOOD = Audited({"delivered": 3, "dead_lettered": 1, "pending": 0, "missing": 0}, {})
BAD = Audited({"delivered": 3, "missing": 2}, {"missing": 2})
MISSED_TWO = json.dumps(
    {"verdicts": BAD.verdicts, "violations": 2, "violations_by": {"missing": 2}}
)


def audit_that_says(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> AuditProcess:
    """An audit with another program in the place of Spark."""
    command = [sys.executable, "-c", program]
    monkeypatch.setattr(demo_audit, "audit_command", lambda *_: (command, dict(os.environ)))
    return AuditProcess(Settings(), folder)


@pytest.mark.parametrize(
    ("audited", "held"),
    [
        (GOOD, True),
        (BAD, False),
        (Audited({"delivered": 3, "pending": 1}, {}), False),
        (Audited({"delivered": 3, "unverifiable": 1}, {}), False),
    ],
)
def test_the_demo_holds_only_if_the_audit_saw_each_end_and_no_violation(
    audited: Audited, held: bool
) -> None:
    assert audited.held is held
    assert summary({}, Verdict(), audited)["held"] is held
    assert summary({}, Verdict(missing=1), audited)["held"] is False


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
        assert _say_audit(audit) == BAD
    assert "missing               2        2\n" in capsys.readouterr().out


def test_an_audit_that_cannot_be_made_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = "import sys; sys.exit('Error: No Java here.')"
    with audit_that_says(monkeypatch, tmp_path, program) as audit:
        audit.start()
        with pytest.raises(AuditFailed, match="could not be made: Error: No Java here"):
            audit.result()


def test_an_audit_under_way_ends_with_the_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with audit_that_says(monkeypatch, tmp_path, "import time; time.sleep(600)") as audit:
        audit.start()
    with pytest.raises(AuditFailed):
        audit.result()


def test_without_spark_the_demo_says_how_to_get_the_audit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _say_audit(None) is None
    assert "pip install 'kafka-delay-proxy[spark]'" in capsys.readouterr().out
    assert summary({}, Verdict(), None)["held"] is True
