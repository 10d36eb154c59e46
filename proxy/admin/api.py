"""The API under /api/v1: which call is answered by what. Documented in `openapi.yaml`."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import structlog
import yaml

from proxy.admin.access import admit
from proxy.admin.calls import Calls
from proxy.admin.dead_letters.letter_calls import LetterCalls
from proxy.admin.exchange import Problem, Reply, Request, as_json, part_of_path, problem
from proxy.admin.lineage.trace_calls import TraceCalls
from proxy.admin.page.event_streams import EventStreams
from proxy.admin.query_mailbox import MailboxFull, NoAnswer
from proxy.config.settings import AdminSettings

PREFIX = "/api/v1"
DOCUMENT = Path(__file__).with_name("openapi.yaml")

log = structlog.get_logger(__name__)

Handler = Callable[..., Reply]
"""Is given the request, and what stands for the parts of the path in braces."""


class Route(NamedTuple):
    """A call: its method, its path with parts in braces, and what answers it."""

    method: str
    template: str
    handler: Handler

    @property
    def pattern(self) -> re.Pattern[str]:
        """Fits the paths of the template."""
        return re.compile(re.sub(r"\{\w+\}", "([^/]+)", PREFIX + self.template))


class AdminApi:
    """Answers calls; anything wrong with one is a reply too. From any thread."""

    def __init__(
        self,
        settings: AdminSettings,
        calls: Calls,
        letters: LetterCalls,
        traces: TraceCalls,
        streams: EventStreams,
    ) -> None:
        self._settings, self.streams = settings, streams
        self.routes = (*_routes(calls, traces, streams), *_letter_routes(letters))
        self._patterns = [(route, route.pattern) for route in self.routes]

    def answer(self, request: Request) -> Reply:
        """The reply to one request."""
        try:
            headers = request.headers
            admit(self._settings, headers)
            route, parts = self._find(request)
            return route.handler(request, *parts)
        except Problem as refused:
            return refused.reply
        except MailboxFull:
            return problem(503, "busy", "Too many questions wait for a worker; try again.")
        except NoAnswer as silent:
            why = f" ({silent})" if str(silent) else ""
            detail = f"A worker has not answered in time: it starts or recovers; try again{why}."
            return problem(503, "no-answer", detail)
        except Exception:
            log.exception("a call of the admin API went wrong", path=request.path)
            return problem(500, "defect", "This is a defect of the proxy; its log says more.")

    def _find(self, request: Request) -> tuple[Route, list[str]]:
        """The route that fits, and the parts of the path that it asks for."""
        fitting = [
            (route, found)
            for route, pattern in self._patterns
            if (found := pattern.fullmatch(request.path))
        ]
        if not fitting:
            detail = f"There is no {request.path[:200]}; see {PREFIX}/openapi.json."
            raise Problem(404, "no-such-path", detail)
        for route, found in fitting:
            if route.method == request.method:
                return route, [part_of_path(part) for part in found.groups()]
        allowed = ", ".join(sorted({route.method for route, _ in fitting}))
        detail = f"This path takes {allowed}."
        raise Problem(405, "method-not-allowed", detail, (("Allow", allowed),))


def _routes(calls: Calls, traces: TraceCalls, streams: EventStreams) -> Sequence[Route]:
    return (
        Route("GET", "/openapi.json", _documented),
        Route("GET", "/events", streams.begin),
        Route("GET", "/pending", calls.pending),
        Route("GET", "/pending/by-time", calls.pending_by_time),
        Route("GET", "/pending/records", calls.listing.pending_records),
        Route("GET", "/half-messages", calls.half_messages),
        Route("GET", "/records", calls.records),
        Route("GET", "/records/{topic}/{partition}/{offset}", calls.record),
        Route("GET", "/records/{topic}/{partition}/{offset}/trace", traces.trace),
        Route("DELETE", "/records/{topic}/{partition}/{offset}", calls.recall),
        Route("PATCH", "/records/{topic}/{partition}/{offset}", calls.move),
        Route("POST", "/cancellations", calls.cancel),
        Route("POST", "/purges", calls.purges.purge),
        Route("GET", "/pauses", calls.pauses.pauses),
        Route("PUT", "/pauses/{pattern}", calls.pauses.pause),
        Route("DELETE", "/pauses/{pattern}", calls.pauses.resume),
        Route("GET", "/ingest", calls.pauses.ingest),
        Route("PUT", "/ingest/paused", calls.pauses.pause_ingest),
        Route("DELETE", "/ingest/paused", calls.pauses.resume_ingest),
        Route("POST", "/skips", calls.skips.skip),
        Route("GET", "/limits", calls.limits.limits),
        Route("PUT", "/limits", calls.limits.set_workers_limit),
        Route("DELETE", "/limits", calls.limits.clear_workers_limit),
        Route("PUT", "/limits/{pattern}", calls.limits.set_limit),
        Route("DELETE", "/limits/{pattern}", calls.limits.clear_limit),
        Route("GET", "/log-level", calls.log_level),
        Route("PUT", "/log-level", calls.set_log_level),
    )


def _letter_routes(letters: LetterCalls) -> Sequence[Route]:
    return (
        Route("GET", "/dead-letters", letters.page),
        Route("GET", "/dead-letters/topics", letters.topics),
        Route("GET", "/dead-letters/{topic}/{partition}/{offset}", letters.letter),
        Route("POST", "/dead-letters/replays", letters.replay),
        Route("GET", "/dead-letters/replays/{id}", letters.follow),
        Route("DELETE", "/dead-letters/replays/{id}", letters.stop),
    )


def _documented(request: Request) -> Reply:
    request.query()
    return as_json(200, document())


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    read: dict[str, Any] = yaml.safe_load(DOCUMENT.read_text("utf-8"))
    return read
