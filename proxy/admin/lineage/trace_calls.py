"""What became of one record, step by step: few traces at a time, each bounded."""

import threading
from typing import Final, Protocol

from proxy.admin.exchange import Problem, Reply, Request, as_json, bad_request
from proxy.admin.query_values import SPAN, place_in_path, wait_s_of
from proxy.dead_letters.letter import Origin
from proxy.lineage.tracer import RecordTrace
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic
from proxy.protocol.times import parse_delay_ms

AT_ONCE: Final = 2
"""Other calls have room beside them."""
WAIT: Final = "10s"
RETRIES_WITHIN: Final = "10m"


class TracePort(Protocol):
    """What a trace asks of `proxy.admin.lineage.kafka_traces.KafkaTraces`; raises Problem."""

    def trace(self, named: Origin, timeout_s: float, retries_within_ms: int) -> RecordTrace: ...


class TraceCalls:
    """Raises Problem."""

    def __init__(self, traces: TracePort) -> None:
        self._traces = traces
        self._free = threading.BoundedSemaphore(AT_ONCE)

    def trace(self, request: Request, topic: str, partition: str, offset: str) -> Reply:
        """What became of the record there, as far as could be read in the time allowed."""
        query = request.query("wait", "retries_within")
        timeout_s = wait_s_of(query.get("wait", WAIT))
        within_ms = _delay_ms(query.get("retries_within", RETRIES_WITHIN))
        named = Origin(topic, *place_in_path(partition, offset))
        if not is_legal_topic(topic):
            raise Problem(404, "not-found", f"No topic has such a name: {TOPIC_NAME_RULE}.")
        if not self._free.acquire(blocking=False):
            raise Problem(503, "busy", f"{AT_ONCE} records are traced already; try again.")
        try:
            return as_json(200, self._traces.trace(named, timeout_s, within_ms).data())
        finally:
            self._free.release()


def _delay_ms(text: str) -> int:
    if SPAN.fullmatch(text) is None:
        raise bad_request("`retries_within` is a length of time like 30s, 10m, 2h.")
    return parse_delay_ms(text)
