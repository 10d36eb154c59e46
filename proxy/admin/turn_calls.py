"""The call that shows the last minute of the workers' loops. No loop is asked for it."""

import json
from typing import Any

from proxy.admin.exchange import JSON_TYPE, Reply, Request
from proxy.admin.query_mailbox import NoAnswer
from proxy.admin.query_values import flag
from proxy.admin.workers import Workers
from proxy.clock import wall_clock_ms
from proxy.telemetry.turn_log import Turns
from proxy.telemetry.turn_summary import columns, summary


class TurnCalls:
    """Raises Problem; NoAnswer where no worker says anything."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def turns(self, request: Request) -> Reply:
        """How long the steps of the loop take in each worker; with `rows` each turn, too."""
        with_rows = flag(request.query("rows"), "rows")
        seen = self._workers.turns()
        if not any(seen.values()):
            raise NoAnswer
        told = [(worker, turns) for worker, turns in seen.items() if turns is not None]
        reply = {
            "now": wall_clock_ms(),
            "workers": [_shown(worker, turns, with_rows=with_rows) for worker, turns in told],
            "silent": [worker for worker, turns in seen.items() if turns is None],
        }
        return Reply(200, JSON_TYPE, _encoded(reply).encode() + b"\n")


def _shown(worker: str, turns: Turns, *, with_rows: bool) -> dict[str, Any]:
    rows = {"rows": columns(turns.rows)} if with_rows else {}
    return {"worker": worker, **summary(turns), **rows}


def _encoded(value: object) -> str:
    """JSON, made a column at a time: the encoder lets the loop wait for as long as it works."""
    match value:
        case dict():
            fields = (f"{json.dumps(name)}: {_encoded(inner)}" for name, inner in value.items())
            return f"{{{', '.join(fields)}}}"
        case [dict(), *_]:
            return f"[{', '.join(map(_encoded, value))}]"
        case _:
            return json.dumps(value)
