"""Plays the demo: broker, proxy, records, a SIGKILL in the middle, and all that comes of it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from proxy.cli.terminal.options import settings_for_embedded
from proxy.cli.terminal.output import counted, progress, say
from proxy.cli.trial.demo.audit_process import AuditProcess
from proxy.cli.trial.demo.group_result import GroupResult
from proxy.cli.trial.demo.operator_calls import OperatorCalls
from proxy.cli.trial.demo.operator_steps import OperatorSteps
from proxy.cli.trial.demo.plan import Step, Wanted, plain_plan
from proxy.cli.trial.demo.stories import CHECKS, ENVIRONMENT, TARGETS, story_plan
from proxy.cli.trial.demo.traffic import PATIENCE_S, SEED, DemoFailed, Traffic
from proxy.cli.trial.dev import make_topics
from proxy.cli.trial.proxy_process import ProxyProcess, proxy_environment
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.embedded import EmbeddedBroker
from proxy.embedded.ports import pick_free
from proxy.extras import lacking

READY_LIMIT_S = 60.0
SOON_S = 2.0
KILL_AFTER_S = 8.0
QUIET_S = 3.0


class Play:
    """One play in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.plan: Sequence[Wanted] = ()
        self._folder = folder
        self._started = time.monotonic()

    @contextmanager
    def play(self) -> Iterator[tuple[dict[str, GroupResult], AuditProcess | None]]:
        """Start all, send, kill, restart, wait; what came of each group of records.

        Besides, the audit under way, which needs the broker: it is gone when this is left. None
        where Spark is not installed.
        """
        self._tell("starting a Kafka broker")
        with EmbeddedBroker(self._folder / "broker") as broker:
            settings = settings_for_embedded(broker.bootstrap_servers)
            stamped = {"message.timestamp.type": "LogAppendTime"}
            make_topics(settings, dict.fromkeys([*TARGETS, CHECKS], stamped))
            audits = nullcontext() if lacking("spark") else AuditProcess(settings, self._folder)
            with audits as audit:
                yield self._play_for(settings, audit), audit

    def _play_for(self, settings: Settings, audit: AuditProcess | None) -> dict[str, GroupResult]:
        with self._proxy(settings) as proxy:
            proxy.await_ready(READY_LIMIT_S)
            address = f"http://127.0.0.1:{proxy.admin_port}/"
            self._tell(f"the proxy is ready; to see what waits, open {address}")
            plan = [*plain_plan(settings, wall_clock_ms(), SEED), *story_plan()]
            calls = OperatorCalls(proxy.admin_port, settings.admin.token)
            with Traffic.opened(settings, plan) as self._traffic:
                operator = OperatorSteps(calls, self._traffic, self._tell)
                self._perform(proxy, operator, audit)
                self.plan = self._traffic.plan
                return self._traffic.results()

    def _perform(
        self, proxy: ProxyProcess, operator: OperatorSteps, audit: AuditProcess | None
    ) -> None:
        """The steps, in order."""
        traffic = self._traffic
        self._send(Step.FIRST, "broker and proxy are cold")
        traffic.read_arrivals([one.ident for one in traffic.plan if one.step is Step.FIRST])
        operator.pause()
        self._send(Step.START, "delayed ones, half messages, bad ones and more")
        began = time.monotonic()
        traffic.read_until(began + SOON_S)
        self._send(Step.SOON, "a cancel, a recall, a replacement, a commit, a rollback")
        operator.reschedule()
        operator.purge()
        operator.resume()
        traffic.read_arrivals([one.after for one in traffic.plan if one.after is not None])
        self._send(Step.ARRIVED, "a cancel that comes too late")
        traffic.read_until(began + KILL_AFTER_S)
        self._kill_and_restart(proxy)
        self._read_to_end()
        if audit is not None:
            self._tell("starting the Spark audit, which reads all topics anew")
            audit.start()
        self._tell("stopping the proxy with SIGTERM")
        self._expect_clean_stop(proxy)
        traffic.read_until(time.monotonic() + QUIET_S)

    def _proxy(self, settings: Settings) -> ProxyProcess:
        self._tell("starting the proxy")
        admin_port = pick_free("127.0.0.1")
        environment = proxy_environment(settings, self._folder / "proxy", admin_port)
        log = self._folder / "proxy.log"
        return ProxyProcess({**ENVIRONMENT, **environment}, admin_port, log)

    def _send(self, step: Step, what: str) -> None:
        sent = self._traffic.send(step)
        self._tell(f"sent {counted(sent, 'record')}: {what}")

    def _kill_and_restart(self, proxy: ProxyProcess) -> None:
        self._tell(
            f"{len(self._traffic.evidence.arrivals)} records have arrived; SIGKILL to the proxy"
        )
        proxy.kill()
        self._send(Step.DOWN, "a cancel and a commit, while the proxy is down")
        proxy.start()
        self._traffic.read_until(time.monotonic() + READY_LIMIT_S, proxy.is_ready)
        self._tell("the proxy is back and has caught up")

    def _read_to_end(self) -> None:
        """Until all have ended, or have had their time; then a while longer, for doubles."""
        traffic, sent = self._traffic, self._traffic.sent
        last_due_ms = max(one.due_when_sent(sent[one.ident].timestamp_ms) for one in traffic.plan)
        deadline = time.monotonic() + last_due_ms / 1000 - time.time() + PATIENCE_S
        missing = wanted = _marks(traffic.plan)
        with progress("records arrived, outcomes, check-backs", wanted) as show:
            while missing and time.monotonic() < deadline:
                traffic.read_until(time.monotonic() + 0.2)
                missing = sum(result.missing for result in traffic.results().values())
                show(wanted - missing)
        arrivals, outcomes = traffic.evidence.arrivals, traffic.evidence.outcomes
        self._tell(f"{len(arrivals)} records have arrived, {len(outcomes)} ended otherwise")
        traffic.read_until(time.monotonic() + QUIET_S)

    def _expect_clean_stop(self, proxy: ProxyProcess) -> None:
        if code := proxy.stop():
            raise DemoFailed(
                f"The proxy answered SIGTERM with exit code {code}.", proxy.last_words()
            )

    def _tell(self, text: str) -> None:
        say(f"{time.monotonic() - self._started:5.1f} s  {text}")


def _marks(plan: Sequence[Wanted]) -> int:
    """How many records are to be seen, in targets, dead letters, outcomes and check-backs."""
    return sum(one.arrives + len(one.ends) + len(one.checks_ms) for one in plan)
