"""What an operator asks of the demo's proxy, through its admin port."""

from typing import Any, Final
from urllib.parse import urlencode

from proxy.cli.admin_port import ask
from proxy.errors import ProxyError
from proxy.records.outcome import REPLACED

ANSWER_WITHIN_S: Final = 90.0
WAIT: Final = urlencode({"wait": "30s"})


class CallFailed(ProxyError):
    """The proxy has answered, but not done what it was asked."""


class OperatorCalls:
    """All raise ProxyUnreachable, and CallFailed where they do not count within their time."""

    def __init__(self, admin_port: int, token: str | None) -> None:
        self._address, self._token = f"127.0.0.1:{admin_port}", token

    def pause(self, target: str) -> None:
        """Hold back what falls due for it."""
        said = self._call("PUT", f"/pauses/{target}")
        _expect(said["in_force"], f"{target} is not paused yet")

    def resume(self, target: str, per_second: int) -> None:
        """Let go what was held back, so many a second."""
        said = self._call("DELETE", f"/pauses/{target}?{urlencode({'per_second': per_second})}")
        _expect(said["in_force"], f"{target} is not resumed yet")

    def reschedule(self, origin: str, deliver_at_ms: int) -> None:
        """Have the record delivered at this time."""
        said = self._call("PATCH", f"/records/{origin}?{WAIT}", {"deliver_at": deliver_at_ms})
        _expect(said["outcome"] == REPLACED, f"{origin} was not moved: {said['outcome']}")

    def count_purged(self, target: str) -> int:
        """How many records a purge of the target would end, by a dry run."""
        return int(self._call("POST", "/purges", {"targets": target, "dry_run": True})["records"])

    def purge(self, target: str) -> list[str]:
        """End all that waits for it; origins of the records that say so."""
        said = self._call("POST", f"/purges?{WAIT}", {"targets": target, "dry_run": False})
        _expect(said["applied"], f"the purge of {target} does not count everywhere yet")
        return list(said["purges"])

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        how = {"method": method, "body": body, "within_s": ANSWER_WITHIN_S}
        return ask(self._address, path, self._token, **how)


def _expect(is_done: object, otherwise: str) -> None:
    if not is_done:
        raise CallFailed(f"The proxy has answered, but {otherwise}.")
