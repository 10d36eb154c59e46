"""The call that skips a batch of the ingress that cannot be read."""

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from pydantic import BeforeValidator, Field

from proxy.admin.exchange import Problem, Reply, Request, as_json
from proxy.admin.query_values import Body, read_body, whole
from proxy.admin.release.noticed import all_notice, code_of
from proxy.clock import wall_clock_ms
from proxy.kafka.ingress.unreadable import UnreadableBatch
from proxy.telemetry.status import Status


class SkipBody(Body):
    """Body of a skip: the place that the log and `/readyz` name."""

    partition: Annotated[int, BeforeValidator(whole)] = Field(ge=0, lt=2**31)
    offset: Annotated[int, BeforeValidator(whole)] = Field(ge=0, lt=2**63)
    dry_run: bool = False


class SkipPort(Protocol):
    """What the call asks of `proxy.admin.broker_access.BrokerAccess`."""

    def unreadable_batch(self, partition: int) -> UnreadableBatch | None: ...
    def skip(self, partition: int, batch: UnreadableBatch, now_ms: int) -> None: ...


class SkipCalls:
    """Raises Problem."""

    def __init__(self, read_statuses: Callable[[], Sequence[Status]], broker: SkipPort) -> None:
        self._read_statuses, self._broker = read_statuses, broker

    def skip(self, request: Request) -> Reply:
        """Skip exactly the batch at which reading fails, if it begins at the place named."""
        request.query()
        body = read_body(SkipBody, request.json())
        batch = self._broker.unreadable_batch(body.partition)
        if batch is None:
            detail = (
                f"Partition {body.partition} can be read from the committed offset on: there is "
                "nothing to skip. Records before a batch have to be committed first."
            )
            raise Problem(409, "readable", detail)
        if batch.base != body.offset:
            detail = (
                f"Partition {body.partition} cannot be read on at offset {batch.base}, not at "
                f"{body.offset}: name that offset to have its batch skipped."
            )
            raise Problem(409, "other-batch", detail)
        if not body.dry_run:
            self._broker.skip(body.partition, batch, wall_clock_ms())
        is_noticed = not body.dry_run and self._is_noticed(body.partition, batch)
        reply = {
            "partition": body.partition,
            "offset": batch.base,
            "end": batch.end,
            "why": batch.error,
            "dry_run": body.dry_run,
            "in_force": is_noticed,
        }
        return as_json(200 if body.dry_run else code_of(is_noticed=is_noticed), reply)

    def _is_noticed(self, partition: int, batch: UnreadableBatch) -> bool:
        """Whether the workers of this process have read on."""
        return all_notice(
            self._read_statuses,
            lambda status: all(
                shard.partition != partition or shard.next_offset >= batch.end
                for shard in status.shards
            ),
        )
