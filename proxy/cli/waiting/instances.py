"""All instances of a proxy, asked one after the other, and what they say together."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from proxy.cli.admin_port import NotThere, fetch
from proxy.errors import ProxyError

PAGE_RECORDS: Final = 1_000
LAST: Final = 2**63

Found = Mapping[str, Any]
"""A record as the API shows it."""


class Answers(NamedTuple):
    """records: in order; partitions: those that were asked about; silent: address -> why it has not
    answered; has_more: whether there are records beyond these."""

    records: list[Found]
    partitions: set[int]
    silent: dict[str, str]
    has_more: bool = False


class Instances:
    """Each is asked for itself: one that does not answer is noted, and the others are asked."""

    def __init__(self, addresses: Sequence[str], token: str | None) -> None:
        self._addresses, self._token = addresses, token

    def listed(self, filters: Mapping[str, str], limit: int) -> Answers:
        """The first `limit` records that wait, in the order of firing."""
        answers = Answers([], set(), {})
        has_more = False
        for address in self._addresses:
            try:
                has_more |= self._list(address, filters, limit, answers)
            except ProxyError as silent:
                answers.silent[address] = str(silent)
        records = sorted(answers.records, key=_place)
        return answers._replace(records=records[:limit], has_more=has_more or len(records) > limit)

    def with_id(self, ident: str) -> Answers:
        """What waits with this id."""
        return self._found(f"/api/v1/records?{urlencode({'id': ident})}")

    def at_origin(self, origin: str, *, with_body: bool) -> Answers:
        """What has become of this ingress record, and what it holds."""
        query = "?body=true" if with_body else ""
        return self._found(f"/api/v1/records/{quote(origin)}{query}")

    def _found(self, path: str) -> Answers:
        answers = Answers([], set(), {})
        for address in self._addresses:
            try:
                said = self._ask(address, path)
                answers.records.extend(said.get("records", [said]))
            except NotThere:
                continue
            except ProxyError as silent:
                answers.silent[address] = str(silent)
        return answers

    def _list(self, address: str, filters: Mapping[str, str], limit: int, answers: Answers) -> bool:
        """Take over the first records of one instance; whether it has more."""
        cursor: str | None = ""
        left = limit
        while cursor is not None and left > 0:
            query = {**filters, "limit": str(min(left, PAGE_RECORDS))}
            query |= {"cursor": cursor} if cursor else {}
            said = self._ask(address, f"/api/v1/pending/records?{urlencode(query)}")
            answers.records.extend(said["records"])
            answers.partitions.update(said["partitions"])
            cursor, left = said["cursor"], left - len(said["records"])
        return cursor is not None

    def _ask(self, address: str, path: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(fetch(address, path, self._token))
        return said


def _place(record: Found) -> tuple[int, int, int]:
    """(fires, partition, offset); what does not fire comes last."""
    _topic, partition, offset = str(record["origin"]).rsplit("/", 2)
    fires_ms = record["fires"]
    return LAST if fires_ms is None else int(fires_ms), int(partition), int(offset)
