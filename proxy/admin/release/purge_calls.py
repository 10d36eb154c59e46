"""The call that purges: what waits for some targets is not delivered."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol

from pydantic import BeforeValidator, Field

from proxy.admin.broker_access import Cancelled
from proxy.admin.exchange import Problem, Reply, Request, as_json
from proxy.admin.listing.each_waiting import EachWaiting
from proxy.admin.listing.filters import pattern_of
from proxy.admin.query_values import Body, read_body, wait_s_of, whole
from proxy.admin.workers import Workers
from proxy.protocol.outcomes import APPLIED
from proxy.protocol.parsed import Purge
from proxy.protocol.times import LATEST_MS
from proxy.scheduling.pending import Sought
from proxy.telemetry.status import Status, covered_by, partitions_of
from storage.store import added

WAIT: Final = "30s"

Due = Annotated[int | None, BeforeValidator(whole)]


class PurgeBody(Body):
    """Body of a purge."""

    targets: str
    due_from: Due = Field(None, ge=0, le=LATEST_MS)
    due_to: Due = Field(None, ge=0, le=LATEST_MS)
    dry_run: bool


class Counted(NamedTuple):
    """How many records of this process's partitions a purge would end, and whether that is all."""

    records: int
    is_all: bool


class PurgePort(Protocol):
    """What the call asks of `proxy.admin.broker_access.BrokerAccess`."""

    def purge(self, purge: Purge, wait_s: float) -> Sequence[Cancelled]: ...


class PurgeCalls:
    """Raises Problem, NoAnswer and MailboxFull."""

    def __init__(
        self,
        read_statuses: Callable[[], Sequence[Status]],
        workers: Workers,
        broker: PurgePort,
    ) -> None:
        self._read_statuses, self._workers, self._broker = read_statuses, workers, broker

    def purge(self, request: Request) -> Reply:
        """Count what the purge would end, and write it unless that is all that is asked for."""
        wait_s = wait_s_of(request.query("wait").get("wait", WAIT))
        body = read_body(PurgeBody, request.json())
        purge = _purge_of(body)
        counted = self._count(purge)
        reply: dict[str, Any] = {
            "targets": purge.targets,
            "due_from": purge.due_from_ms or None,
            "due_to": None if purge.due_to_ms == LATEST_MS else purge.due_to_ms,
            "dry_run": body.dry_run,
            "records": counted.records,
            "counted_all": counted.is_all,
            "partitions": covered_by(self._read_statuses()),
        }
        if body.dry_run:
            return as_json(200, reply)
        written = self._broker.purge(purge, wait_s)
        refused = next((one for one in written if one.outcome not in {None, APPLIED}), None)
        if refused is not None:
            raise Problem(409, "refused", f"{refused.origin} was refused: {refused.detail}.")
        is_applied = all(one.outcome == APPLIED for one in written)
        reply |= {"purges": [one.origin for one in written], "applied": is_applied}
        return as_json(200 if is_applied else 202, reply)

    def _count(self, purge: Purge) -> Counted:
        if purge.due_from_ms == 0 and purge.due_to_ms == LATEST_MS:
            counts = added([status.pending_by_target for status in self._read_statuses()])
            if not counts.others:
                by_name = counts.by_name.items()
                return Counted(sum(n for target, n in by_name if purge.is_for(target)), True)
        return self._count_one_by_one(purge)

    def _count_one_by_one(self, purge: Purge) -> Counted:
        partitions = partitions_of(self._read_statuses())
        each = EachWaiting(self._workers.ask, Sought(purge.targets), partitions)
        ended = (one.why != "undecided" and purge.ends(one.target, one.due_ms) for one in each)
        return Counted(sum(ended), each.is_all)


def _purge_of(body: PurgeBody) -> Purge:
    due_to_ms = LATEST_MS if body.due_to is None else body.due_to
    purge = Purge(pattern_of(body.targets), body.due_from or 0, due_to_ms)
    if purge.due_from_ms > purge.due_to_ms:
        raise Problem(409, "nothing-between", "`due_from` lies behind `due_to`.")
    return purge
