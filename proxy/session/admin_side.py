"""One worker as the admin port knows it."""

import time
from dataclasses import dataclass
from typing import Self

from proxy.admin.query_mailbox import QueryMailbox
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.status import Status, StatusBoard


@dataclass(frozen=True, slots=True)
class AdminSide:
    """A worker's newest status, its metrics, and the mailbox for queries; outlives its sessions."""

    board: StatusBoard
    metrics: Metrics
    mailbox: QueryMailbox

    @classmethod
    def of_new_worker(cls, targets_shown: int) -> Self:
        """Of a worker that starts now; so many targets have metrics of their own."""
        board = StatusBoard(time.monotonic())
        return cls(board, Metrics(board.read, targets_shown), QueryMailbox())

    def show_lost_session(self) -> None:
        """The loop lives, and serves nothing until the next session has its shards."""
        self.metrics.count_lost_session()
        known = self.board.read()
        self.board.show(
            Status(
                heartbeat_monotonic=time.monotonic(),
                paused=known.paused,
                release_rates=known.release_rates,
                limits=known.limits,
                max_per_second=known.max_per_second,
                is_ingest_paused=known.is_ingest_paused,
            )
        )
