"""Show each feature once, in about two minutes: `make demo`.

The program starts a Kafka broker and the proxy, and sends records of every kind. It uses the
commands that a person would type, and kills the proxy in the middle. At the end the Spark audit
reads all topics. Exit code 0: each record ended once, as expected, and none came early.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.cli.terminal import settings_for_embedded
from proxy.cli.trial import ProxyProcess, proxy_environment
from proxy.embedded import EmbeddedBroker
from proxy.embedded.server import pick_free

ORDERS, BILLS, REMINDERS, CHECKS = "demo-orders", "demo-bills", "demo-reminders", "demo-checks"
RETRY, GIVEN_UP = "retry.demo-group", "dlq.demo-group"
LETTERS, PARTITIONS, MANY, PER_SECOND = "timer.dead-letters", 4, 12, 6
HALF = {"timer-transaction": "prepare", "timer-check-immunity": "10m"}
NEVER = "1h"  # for records that are taken back long before they are due
PATIENCE_S = 240.0
SETTINGS = {
    "DELAY_PROXY_ROLL_AFTER": "30s",
    "DELAY_PROXY_LEVELS": "1s 2s 3s 4s",
    "DELAY_PROXY_RETRY__FIRST_LEVEL": "1",
    "DELAY_PROXY_RETRY__MAX_ATTEMPTS": "3",
    "DELAY_PROXY_RETRY__GROUPS": '{"demo-group": {"first_level": 3, "max_attempts": 16}}',
    "DELAY_PROXY_TRANSACTIONS__IMMUNITY": "2s",
    "DELAY_PROXY_TRANSACTIONS__CHECK_INTERVAL": "3s",
    "DELAY_PROXY_TRANSACTIONS__MAX_CHECKS": "3",
    "DELAY_PROXY_LOG__FORMAT": "console",
}
TARGETS = (ORDERS, BILLS, REMINDERS, CHECKS, RETRY, GIVEN_UP)
WRITING = {"partitioner": "murmur2_random"}  # the commands expect ids in Java's partitions
READING = {"group.id": "demo", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}
BAD = {  # requests, by the reason that their dead letters must give
    "time-unreadable": {"timer-topic": ORDERS, "timer-delay": "soonish"},
    "level-unknown": {"timer-topic": ORDERS, "timer-level": "high"},
    "delay-too-long": {"timer-topic": ORDERS, "timer-delay": "99999d"},
    "target-illegal": {"timer-topic": "not/a/topic"},
    "target-refused": {"timer-topic": "timer.ingress"},
    "target-missing": {"timer-delay": "1s"},
    "target-unknown": {"timer-topic": "demo-nowhere", "timer-delay": "2s"},
}


class NotHeld(Exception):
    """A result differs from the expected one."""


class Expected(NamedTuple):
    """The expected topic of a record, its due (epoch ms), and the reason if it is a dead letter."""

    topic: str
    due_ms: int
    reason: str | None = None


class Topics:
    """Writer to the ingress and reader of all other topics."""

    def __init__(self, bootstrap: str) -> None:
        self.expected: dict[str, Expected] = {}
        self.arrived: dict[str, list[Message]] = {}
        self.check_backs = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, **WRITING})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **READING})
        self._consumer.subscribe([*TARGETS, LETTERS])

    def send(self, name: str, asked: dict[str, str], key: str | None = None) -> tuple[str, int]:
        """Write one record whose value is its name. Return its origin and its timestamp."""
        stored: list[Message] = []
        how = {"headers": list(asked.items()), "on_delivery": lambda _, one: stored.append(one)}
        self._producer.produce("timer.ingress", name, key or name, **how)
        self._producer.flush(PATIENCE_S)
        (one,) = stored
        if one.error() is not None:
            raise KafkaException(one.error())
        return f"{one.topic()}/{one.partition()}/{one.offset()}", one.timestamp()[1]

    def send_expecting(
        self, name: str, asked: dict[str, str], delay_ms: int, topic: str = "", key: str = ""
    ) -> None:
        """Write a record that must arrive `delay_ms` after its timestamp."""
        _origin, timestamp_ms = self.send(name, asked, key or None)
        self.expected[name] = Expected(topic or asked["timer-topic"], timestamp_ms + delay_ms)

    def read(self, seconds: float) -> None:
        """Read the records that arrive within this time."""
        for message in self._consumer.consume(1_000, seconds):
            if message.error() is not None:
                continue  # `read_until` reads again
            if message.topic() == CHECKS:
                self.check_backs += 1
            else:
                self.arrived.setdefault((message.value() or b"").decode(), []).append(message)

    def read_until(self, condition: Callable[[], bool], what: str) -> None:
        """Read on until the condition holds. Raises `NotHeld`."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until_s:
                raise NotHeld(f"{what} did not arrive within {PATIENCE_S:.0f} s")
            self.read(0.2)

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each record that did not arrive as expected."""
        for name, wanted in self.expected.items():
            found = self.arrived.get(name, [])
            if len(found) != 1:
                yield f"{name} arrived {len(found)} times"
                continue
            headers = dict(found[0].headers() or [])
            reason = headers.get("timer-error", b"").decode() or None
            if (found[0].topic(), reason) != (wanted.topic, wanted.reason):
                yield f"{name} is in {found[0].topic()} with the reason {reason}"
            if found[0].timestamp()[1] < wanted.due_ms:
                yield f"{name} is {wanted.due_ms - found[0].timestamp()[1]} ms early"
        for name in self.arrived.keys() - self.expected.keys():
            yield f"{name} arrived, but must not"


class Demo:
    """The steps of the demo, in their own folder."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder, self._began_s = folder, time.monotonic()
        settings, port = settings_for_embedded(bootstrap), pick_free("127.0.0.1")
        own = proxy_environment(settings, folder / "proxy", port)
        self._proxy = ProxyProcess({**SETTINGS, **own}, port, folder / "proxy.log")
        self.command("topics", "create")
        made = [NewTopic(name, PARTITIONS, 1, config=STAMPED) for name in TARGETS]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for wait in admin.create_topics(made).values():
            wait.result(PATIENCE_S)
        self.topics = Topics(bootstrap)
        self._verdicts: Counter[str] = Counter()

    def tell(self, text: str) -> None:
        """Print the progress."""
        print(f"{time.monotonic() - self._began_s:5.1f} s  {text}", flush=True)

    def command(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command of the proxy. Return its output."""
        program = [sys.executable, "-m", "proxy", *words]
        done = subprocess.run(
            program, env=self._proxy.environment, capture_output=True, text=True, check=False
        )
        if done.returncode not in codes:
            raise NotHeld(f"kafka-delay-proxy {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def play(self) -> None:
        """Run all steps up to the end of the proxy."""
        topics, proxy = self.topics, self._proxy
        with proxy:
            proxy.await_ready(PATIENCE_S)
            self.tell(f"ready; http://127.0.0.1:{proxy.admin_port}/ lists pending records")
            self.command("pause", BILLS)
            self._send()
            self._take_back()
            self._operate()
            topics.read_until(lambda: len(topics.arrived) >= 40, "40 records")
            self._prepare("half-while-down")
            self.tell(f"{len(topics.arrived)} records have arrived: SIGKILL to the proxy")
            proxy.kill()
            self.command("cancel", "cancelled-while-down", "--wait", "0", codes=(0, 1))
            self.command("commit", "half-while-down", "--wait", "0", codes=(0, 1))
            self.tell("a cancel and a commit were sent while the proxy was down")
            proxy.start()
            proxy.await_ready(PATIENCE_S)
            topics.read_until(lambda: topics.expected.keys() <= topics.arrived.keys(), "the rest")
            topics.read(3)
            self.tell(f"all {len(topics.expected)} records that must arrive are there")
            if code := proxy.stop():
                raise NotHeld(f"the proxy answered SIGTERM with exit code {code}")
        topics.read(3)

    def _send(self) -> None:
        topics, to = self.topics, {"timer-topic": ORDERS}
        for number in range(60):
            delay_ms = 1_000 + 250 * number
            asked = {**to, "timer-delay": f"{delay_ms}ms"}
            topics.send_expecting(f"delay-{number}", asked, delay_ms)
        for level in (1, 2, 3):
            asked = {**to, "timer-level": str(level)}
            topics.send_expecting(f"level-{level}", asked, level * 1_000)
        topics.send_expecting("at-once", to, 0)
        topics.send_expecting("rewritten", {**to, "timer-delay": "33s"}, 33_000)
        for number in range(MANY):
            asked = {"timer-topic": BILLS, "timer-delay": "1s"}
            topics.send_expecting(f"bill-{number}", asked, 1_000)
            topics.send(f"reminder-{number}", {"timer-topic": REMINDERS, "timer-delay": NEVER})
        failed = {"timer-retry-group": "demo-group"}
        topics.send_expecting("1st-failure", {**failed, "timer-attempt": "0"}, 3_000, RETRY)
        topics.send_expecting("last-failure", {**failed, "timer-attempt": "16"}, 0, GIVEN_UP)
        for reason, asked in BAD.items():
            topics.send(reason, asked)
            topics.expected[reason] = Expected(LETTERS, 0, reason)
        self.tell(f"sent {len(topics.expected)} delayed, failed and bad records, and {MANY} more")
        self._verdicts.update(dead_lettered=len(BAD), applied=PARTITIONS, cancelled=MANY)

    def _named(self, name: str, delay: str, **more: str) -> tuple[str, int]:
        asked = {"timer-topic": ORDERS, "timer-delay": delay, "timer-id": name, **more}
        return self.topics.send(name, asked, name)

    def _prepare(self, name: str) -> None:
        """Write a half message that is to be committed."""
        _origin, timestamp_ms = self._named(name, "12s", **HALF)
        self.topics.expected[name] = Expected(ORDERS, timestamp_ms + 12_000)

    def _take_back(self) -> None:
        for name in ("cancelled", "cancelled-while-down", "replaced"):
            self._named(name, NEVER)
        undecided = {"timer-transaction": "prepare", "timer-check-topic": CHECKS}
        self._named("half-undecided", NEVER, **undecided)
        self.topics.expected["half-undecided"] = Expected(LETTERS, 0, "transaction-expired")
        again = {"timer-topic": ORDERS, "timer-delay": "12s", "timer-id": "replaced"}
        self.topics.send_expecting("replacement", again, 12_000, key="replaced")
        recalled, _ = self.topics.send("recalled", {"timer-topic": ORDERS, "timer-delay": NEVER})
        self.command("cancel", "cancelled", "--wait", "60s")
        self.command("recall", recalled, "--wait", "60s")
        self._prepare("half-committed")
        self.command("commit", "half-committed", "--wait", "60s")
        self._named("half-rolled-back", NEVER, **HALF)
        self.command("rollback", "half-rolled-back", "--wait", "60s")
        self.command("cancel", "nothing-has-this-id", "--wait", "60s", codes=(1,))
        self.tell("a cancel, a recall, a replacement, a commit, a rollback, a cancel of nothing")
        self._verdicts.update(
            cancelled=3, replaced=2, rolled_back=1, expired=1, missed=1, applied=7
        )

    def _operate(self) -> None:
        origin, _ = self.topics.send("rescheduled", {"timer-topic": ORDERS, "timer-delay": NEVER})
        self.topics.expected["rescheduled"] = Expected(ORDERS, time.time_ns() // 1_000_000)
        self.command("reschedule", origin, "--delay", "5s")
        said = self.command("purge", REMINDERS, "--dry-run")
        self.tell(f"purge of {REMINDERS}, a dry run: {said.strip().splitlines()[0]}")
        self.command("purge", REMINDERS, "--yes")
        bills = {f"bill-{number}" for number in range(MANY)}
        if bills & self.topics.arrived.keys():
            raise NotHeld(f"{BILLS} is paused, and a record arrived there")
        self.command("resume", BILLS, "--per-second", str(PER_SECOND))
        self.topics.read_until(lambda: bills <= self.topics.arrived.keys(), f"all of {BILLS}")
        times_ms = [self.topics.arrived[name][0].timestamp()[1] for name in bills]
        took_s = (max(times_ms) - min(times_ms)) / 1_000
        if took_s < MANY / PER_SECOND / 2:
            raise NotHeld(f"{MANY} records at {PER_SECOND} a second came in {took_s:.1f} s")
        self.tell(f"{BILLS} was paused and resumed: {MANY} records came within {took_s:.1f} s")

    def judge(self) -> None:
        """Compare the arrived records, then the result of the audit. Raises `NotHeld`."""
        if faults := list(self.topics.faults()):
            raise NotHeld("; ".join(faults))
        if self.topics.check_backs != 3:
            raise NotHeld(f"{self.topics.check_backs} check-backs arrived, expected 3")
        self.tell("the Spark audit now reads all topics ...")
        words = ("audit", "--output", f"{self._folder}/audit", "--json", "--driver-memory", "1g")
        found: dict[str, Any] = json.loads(self.command(*words, codes=(0, 2, 3)).splitlines()[-1])
        verdicts = {name: n for name, n in found["verdicts"].items() if n}
        for name, n in verdicts.items():
            print(f"         {n:5}  {name.replace('_', ' ')}")
        letters = sum(one.topic == LETTERS for one in self.topics.expected.values())
        wanted = Counter(self._verdicts, delivered=len(self.topics.expected) - letters)
        wanted.update({name: verdicts.get(name, 0) for name in ("requeued", "rolled")})
        # A resumed record may be moved twice, and the second move then misses (exactly-once.md).
        wanted["missed"] = max(wanted["missed"], verdicts.get("missed", 0))
        if found["violations"] or verdicts != wanted:
            raise NotHeld(f"{found['violations']} violations; expected {dict(wanted)}")


def main() -> int:
    """Run the demo, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="delay-proxy-demo-") as folder:
        print("       starting a Kafka broker", flush=True)
        with EmbeddedBroker(Path(folder) / "broker") as broker:
            demo = Demo(Path(folder), broker.bootstrap_servers)
            try:
                demo.play()
                demo.judge()
            except NotHeld as why:
                print(f"The demo failed: {why}", file=sys.stderr)
                return 1
            demo.tell("passed: each record ended once, as expected, and none came early")
            return 0


if __name__ == "__main__":
    sys.exit(main())
