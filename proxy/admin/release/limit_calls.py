"""The calls about caps and rules for the overdue: what counts, and what is set at run time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from proxy.admin.exchange import Problem, Reply, Request, as_json
from proxy.admin.listing.filters import pattern_of
from proxy.admin.query_values import Body, read_body, whole
from proxy.admin.release.noticed import all_notice, code_of
from proxy.clock import wall_clock_ms
from proxy.config.settings import MOST_PER_SECOND, ReleaseSettings
from proxy.config.target_limit import OverdueLimit, TargetLimit, by_precedence
from proxy.kafka.settings.run_time_controls import MOST_LIMITS
from proxy.protocol.times import parse_delay_ms, shown_delay
from proxy.telemetry.status import Status

OLDER_THAN: Final = (
    r"^([1-9][0-9]{0,11}ms|[1-9][0-9]{0,8}s|[1-9][0-9]{0,6}m|[1-9][0-9]{0,4}h|[1-9][0-9]{0,3}d)$"
)
"""Whatever it fits is shorter than the longest delay that settings take."""


def _given(value: object) -> object:
    if value is None:
        raise ValueError("leave it out rather than say null")
    return value


class OverdueBody(Body):
    """What becomes of records that are so much overdue."""

    older_than: Annotated[str, StringConstraints(pattern=OLDER_THAN)]
    action: Literal["deliver", "dead-letter", "drop"]


class LimitBody(Body):
    """Body of a limit: a cap, a rule, or both."""

    per_second: Annotated[int | None, BeforeValidator(whole), BeforeValidator(_given)] = Field(
        None, ge=1, le=MOST_PER_SECOND
    )
    overdue: Annotated[OverdueBody | None, BeforeValidator(_given)] = None

    @model_validator(mode="after")
    def _says_something(self) -> "LimitBody":
        if self.per_second is None and self.overdue is None:
            raise ValueError("name per_second, overdue, or both")
        return self

    def limit(self) -> TargetLimit:
        """As the settings topic has it."""
        asked = self.overdue
        rule = asked and OverdueLimit(
            older_than_ms=parse_delay_ms(asked.older_than), action=asked.action
        )
        return TargetLimit(per_second=self.per_second, overdue=rule)


class RateBody(Body):
    """Body of the bound on each worker."""

    per_second: Annotated[int, BeforeValidator(whole)] = Field(ge=1, le=MOST_PER_SECOND)


class LimitPort(Protocol):
    """What the calls ask of `proxy.admin.broker_access.BrokerAccess`."""

    def limit(self, pattern: str, limit: TargetLimit, now_ms: int) -> None: ...
    def clear_limit(self, pattern: str) -> None: ...
    def limit_workers(self, per_second: int, now_ms: int) -> None: ...
    def clear_workers_limit(self) -> None: ...


class LimitCalls:
    """`release`: what the settings of this process say. All calls raise Problem."""

    def __init__(
        self,
        release: ReleaseSettings,
        read_statuses: Callable[[], Sequence[Status]],
        broker: LimitPort,
    ) -> None:
        self._release, self._read_statuses, self._broker = release, read_statuses, broker

    def limits(self, request: Request) -> Reply:
        """What counts, in the order in which patterns are tried, and where each comes from."""
        request.query()
        ordered = by_precedence(self._set()).items()
        set_now = [_shown(pattern, limit, "run-time") for pattern, limit in ordered]
        reply = {
            "limits": [*set_now, *_of_settings(self._release)],
            **self._of_each_worker(),
        }
        return as_json(200, reply)

    def set_limit(self, request: Request, pattern: str) -> Reply:
        """Set a cap, a rule or both for the targets of a pattern, in place of what was set."""
        request.query()
        limit = read_body(LimitBody, request.json()).limit()
        known = self._set()
        if pattern_of(pattern) not in known and len(known) >= MOST_LIMITS:
            detail = f"{MOST_LIMITS} patterns have limits set at run time: clear some first."
            raise Problem(409, "too-many", detail)
        self._broker.limit(pattern, limit, wall_clock_ms())
        return self._noticed(pattern, limit)

    def clear_limit(self, request: Request, pattern: str) -> Reply:
        """Take back what was set at run time: what the settings say counts again."""
        request.query()
        self._broker.clear_limit(pattern_of(pattern))
        return self._noticed(pattern, None)

    def set_workers_limit(self, request: Request) -> Reply:
        """Set the bound on each worker as a whole, in place of what was set."""
        request.query()
        per_second = read_body(RateBody, request.json()).per_second
        self._broker.limit_workers(per_second, wall_clock_ms())
        return self._workers_noticed(per_second)

    def clear_workers_limit(self, request: Request) -> Reply:
        """Take back what was set at run time: what the settings say counts again."""
        request.query()
        self._broker.clear_workers_limit()
        return self._workers_noticed(None)

    def _of_each_worker(self) -> Mapping[str, Any]:
        """While workers differ, the lowest that was set at run time."""
        found = [one.max_per_second for one in self._read_statuses()]
        set_now = min((per_second for per_second in found if per_second is not None), default=None)
        if set_now is None:
            of_settings = self._release.max_per_second
            return {"max_per_second": of_settings, "max_per_second_source": "settings"}
        return {"max_per_second": set_now, "max_per_second_source": "run-time"}

    def _workers_noticed(self, per_second: int | None) -> Reply:
        is_noticed = all_notice(
            self._read_statuses, lambda status: status.max_per_second == per_second
        )
        reply = {**self._of_each_worker(), "in_force": is_noticed}
        return as_json(code_of(is_noticed=is_noticed), reply)

    def _set(self) -> dict[str, TargetLimit]:
        return {
            name: one for status in self._read_statuses() for name, one in status.limits.items()
        }

    def _noticed(self, pattern: str, limit: TargetLimit | None) -> Reply:
        is_noticed = all_notice(
            self._read_statuses, lambda status: status.limits.get(pattern) == limit
        )
        shown = {"pattern": pattern, **_parts(limit), "in_force": is_noticed}
        return as_json(code_of(is_noticed=is_noticed), shown)


def _of_settings(release: ReleaseSettings) -> Iterator[Mapping[str, Any]]:
    for pattern, per_second in release.per_target.items():
        yield _shown(pattern, TargetLimit(per_second=per_second), "settings")
    for rule in release.overdue:
        overdue = OverdueLimit(older_than_ms=rule.older_than_ms, action=rule.action)
        yield _shown(rule.targets, TargetLimit(overdue=overdue), "settings")


def _shown(pattern: str, limit: TargetLimit, source: str) -> Mapping[str, Any]:
    return {"pattern": pattern, **_parts(limit), "source": source}


def _parts(limit: TargetLimit | None) -> Mapping[str, Any]:
    if limit is None:
        return {"per_second": None, "overdue": None}
    rule = limit.overdue
    shown = rule and {"older_than": shown_delay(rule.older_than_ms), "action": rule.action}
    return {"per_second": limit.per_second, "overdue": shown}
