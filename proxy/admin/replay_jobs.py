"""Running and ended replays, each in its own thread."""

import threading
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from proxy.admin import models
from proxy.admin.problem import Problem
from proxy.clock import wall_clock_ms
from proxy.dead_letters.letter import Place
from proxy.dead_letters.replay import OnDecision, ReplayOptions
from proxy.dead_letters.replay_plan import ReplayCounts, ReplayDecision, Selection

AT_WORK: Final = 2
KEPT: Final = 50
STOPPED_WITHIN_S: Final = 5.0
DEFECT: Final = "This is a defect of the proxy. Its log has the details."

log = structlog.get_logger(__name__)


class WantedReplay(NamedTuple):
    """A replay that a call asks for.

    `group` is the consumer group whose dead-letter topic is replayed, None for the proxy's own
    dead-letter topic. `places` is None for all letters of the selection."""

    topic: str
    group: str | None
    selection: Selection
    places: tuple[Place, ...] | None
    options: ReplayOptions
    is_dry: bool


Replaying = Callable[[WantedReplay, OnDecision, Callable[[Place], None], Callable[[], bool]], None]
"""The signature of `TopicReaders.replay`, which raises Problem."""


class ReplayJob:
    """A replay or a dry run. It starts when the object is made."""

    def __init__(self, wanted: WantedReplay, replay: Replaying) -> None:
        self.wanted, self._replay = wanted, replay
        self._lock = threading.Lock()
        self._counts = ReplayCounts()
        self._shown = models.Replay(
            id=uuid.uuid4().hex[:12],
            topic=wanted.topic,
            dry_run=wanted.is_dry,
            state="running",
            replayed=0,
            by_target=[],
            left=[],
            missing=[],
            error=None,
            started=wall_clock_ms(),
            ended=None,
        )
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self.thread.start()

    @property
    def ident(self) -> str:
        return self._shown.id

    @property
    def is_running(self) -> bool:
        return self._shown.state == "running"

    def stop(self) -> None:
        self._stop.set()

    def shown(self, wait_s: float) -> models.Replay:
        self.thread.join(wait_s)
        with self._lock:
            counts = self._counts
            by_target = [
                models.ReplayedTarget(
                    target=target,
                    letters=one.letters,
                    first_due=one.first_due_ms,
                    last_due=one.last_due_ms,
                )
                for target, one in sorted(counts.by_target.items(), key=lambda t: -t[1].letters)
            ]
            left = [
                models.LeftLetters(
                    reason=kind, letters=one.letters, detail=one.detail, first=str(one.place)
                )
                for kind, one in sorted(counts.by_reason.items(), key=lambda r: -r[1].letters)
            ]
            now = {"replayed": counts.replayable, "by_target": by_target, "left": left}
            return self._shown.model_copy(update={**now, "missing": [*self._shown.missing]})

    def _run(self) -> None:
        state, error = "finished", None
        try:
            self._replay(self.wanted, self._note, self._note_missing, self._stop.is_set)
            state = "stopped" if self._stop.is_set() else "finished"
        except Problem as refused:
            state, error = "failed", str(refused)
        except Exception:
            log.exception("a replay of dead letters went wrong", topic=self.wanted.topic)
            state, error = "failed", DEFECT
        with self._lock:
            ended = {"state": state, "error": error, "ended": wall_clock_ms()}
            self._shown = self._shown.model_copy(update=ended)

    def _note(self, decision: ReplayDecision, _replayed_as: str | None) -> None:
        with self._lock:
            self._counts.note(decision)

    def _note_missing(self, place: Place) -> None:
        with self._lock:
            self._shown.missing.append(str(place))


class ReplayJobs:
    """The replays of this process. At most AT_WORK jobs run at a time, dry runs included. Each
    topic has at most one running replay, beside dry runs. The newest KEPT jobs are remembered."""

    def __init__(self, replay: Replaying) -> None:
        self._replay = replay
        self._lock = threading.Lock()
        self._jobs: dict[str, ReplayJob] = {}
        self._is_closed = False

    def start(self, wanted: WantedReplay) -> ReplayJob:
        with self._lock:
            running = [job for job in self._jobs.values() if job.is_running]
            for job in running:
                if job.wanted.topic == wanted.topic and not (job.wanted.is_dry or wanted.is_dry):
                    detail = (
                        f"The replay {job.ident} of {wanted.topic} is running. Wait, or stop it."
                    )
                    raise Problem(409, "replaying", detail)
            if len(running) >= AT_WORK or self._is_closed:
                detail = f"{AT_WORK} replays or dry runs are running already. Wait, or stop one."
                raise Problem(503, "busy", detail)
            job = ReplayJob(wanted, self._replay)
            self._jobs[job.ident] = job
            ended = [ident for ident, one in self._jobs.items() if not one.is_running]
            for ident in ended[: max(0, len(self._jobs) - KEPT)]:
                del self._jobs[ident]
            return job

    def find(self, ident: str) -> ReplayJob:
        job = self._jobs.get(ident)
        if job is None:
            detail = "This process knows no such replay. If it ran, its letters stay replayed."
            raise Problem(404, "not-found", detail)
        return job

    def close(self) -> None:
        """Stop all jobs and wait for them, at most STOPPED_WITHIN_S. Each job's current batch is
        committed or undone."""
        with self._lock:
            self._is_closed = True
            running = [job for job in self._jobs.values() if job.is_running]
        for job in running:
            job.stop()
        for job in running:
            job.thread.join(STOPPED_WITHIN_S / len(running))
