"""`dev` and examples/demo.py as a person runs them, from the first line to the exit code."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

READY_LIMIT_S = 270.0
STOP_LIMIT_S = 180.0
DEMO_LIMIT_S = 1_200.0
PATIENT = ("--wait", "40s", "--json")
COMMAND = (sys.executable, "-m", "proxy")
EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE, DEMO = EXAMPLES / "proxy.yaml", EXAMPLES / "demo.py"
KNOWN_WITHIN_S = 180.0
TRIES = 3
PURGED = 12
TOO_SLOW = re.compile("not answer in time|No Kafka broker answers")

pytestmark = pytest.mark.integration


@contextmanager
def a_dev(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    said = folder / "said"
    with said.open("ab") as out:
        process = subprocess.Popen(
            [*COMMAND, "dev", "--port", "0", "--data-dir", str(folder / "data"), *options],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()


def call(*arguments: str, exit_code: int = 0) -> str:
    """Run a command and return its output. Repeat it while the broker is too slow."""
    for _ in range(TRIES):
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, timeout=180, check=False
        )
        if done.returncode == 0 or not TOO_SLOW.search(done.stderr):
            break
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert done.stdout or not exit_code, done.stderr
    return done.stdout


def admin_port(said: str) -> int:
    found = re.search(r"pending records: http://127\.0\.0\.1:(\d+)/", said)
    assert found, said
    return int(found[1])


def pending(said: Path) -> int:
    shown = call("pending", "--admin", f"127.0.0.1:{admin_port(said.read_text())}", "--json")
    return int(json.loads(shown)["pending"])


def broker(said: str) -> str:
    found = re.search(r"Kafka listens on (\S+),", said)
    assert found, said
    return found[1]


def test_dev_delivers_what_is_pasted_and_stops_cleanly_with_one_signal(tmp_path: Path) -> None:
    with a_dev(tmp_path) as (process, said):
        wait_for(
            lambda: "Ctrl-C stops the broker and the proxy" in said.read_text(),
            READY_LIMIT_S,
            "dev to be ready",
        )
        bootstrap = broker(said.read_text())
        sent = call("send", "-b", bootstrap, "-t", "orders", "--delay", "1s", "-v", "x", "--json")
        waiting = pending(said)
        shown = call(
            "watch", "orders", "-b", bootstrap, "--from-beginning", "--count", "1", "--json"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_LIMIT_S) == 0, said.read_text()
    assert waiting in {0, 1}
    assert json.loads(shown)["origin"] == json.loads(sent)["origin"]
    assert json.loads(shown)["lateness_ms"] >= 0
    assert "proxy stopped" in said.read_text()


def test_dev_takes_a_settings_file(tmp_path: Path) -> None:
    """Without the file another scheduler's header would be ignored."""
    with a_dev(tmp_path, "--config", str(EXAMPLE)) as (_process, said):
        wait_for(
            lambda: "Ctrl-C stops the broker and the proxy" in said.read_text(),
            READY_LIMIT_S,
            "dev to be ready",
        )
        where = ("-b", broker(said.read_text()), "-t", "orders")
        call("send", *where, "-v", "in an hour", "-H", "x-delay=3600000")
        wait_for(lambda: pending(said) == 1, KNOWN_WITHIN_S, "the record to wait")


def test_dev_takes_back_what_is_cancelled_and_decides_half_messages(tmp_path: Path) -> None:
    with a_dev(tmp_path) as (_process, said):
        wait_for(
            lambda: "Ctrl-C stops the broker and the proxy" in said.read_text(),
            READY_LIMIT_S,
            "dev to be ready",
        )
        where = ("-b", broker(said.read_text()))
        record = ("-t", "orders", "--delay", "1h", "-k", "some key", "-v", "x", "--json")
        sent = json.loads(call("send", *where, *record, "--id", "o1"))
        first = json.loads(call("cancel", "o1", *where, *PATIENT))
        second = json.loads(call("cancel", "o1", *where, *PATIENT, exit_code=1))
        call("send", *where, *record, "--id", "h1", "--prepare", "--check-topic", "orders")
        call("send", *where, *record, "--id", "h2", "--prepare")
        committed = json.loads(call("commit", "h1", *where, *PATIENT))
        dropped = json.loads(call("rollback", "h2", *where, *PATIENT))
        undecided = json.loads(call("rollback", "h1", *where, *PATIENT, exit_code=1))
    assert (first["outcome"], first["ended"]["origin"]) == ("applied", sent["origin"])
    assert second["outcome"] == "missed"
    assert (committed["outcome"], dropped["outcome"]) == ("applied", "applied")
    assert dropped["ended"]["outcome"] == "rolled-back"
    assert undecided["outcome"] == "missed"


def test_dev_that_is_killed_leaves_neither_proxy_nor_broker_behind(tmp_path: Path) -> None:
    with a_dev(tmp_path) as (process, said):
        wait_for(
            lambda: "Ctrl-C stops the broker and the proxy" in said.read_text(),
            READY_LIMIT_S,
            "dev to be ready",
        )
        process.kill()
        process.wait()
        wait_for(lambda: not processes_in(tmp_path), STOP_LIMIT_S, "its processes to end")


def test_demo_holds_through_a_kill_and_says_what_the_audit_found() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        timeout=DEMO_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL to the proxy" in done.stdout
    assert f"a dry run: {PURGED} records for demo-reminders are pending" in done.stdout
    assert re.search(r"^ +83  delivered\n", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].endswith("as expected, and none came early")


def processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts = [(process / name).read_bytes() for name in ("cmdline", "environ")]
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(os.fsencode(folder) in text for text in texts):
            found.append(texts[0].replace(b"\0", b" ").decode("utf-8", "replace"))
    return found
