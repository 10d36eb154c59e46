"""What waits, as all instances of a proxy say it together."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from proxy.cli.admin_port import NotThere, ask, ask_each, too_old
from proxy.cli.waiting.coverage import repeated
from proxy.dead_letters.letters.letter import Origin

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


class Counts(NamedTuple):
    """by_target: records that wait for it; others: for targets that were not counted by name.

    Those of the partitions `twice` are in it more than once."""

    by_target: dict[str, int]
    others: int
    partitions: set[int]
    twice: list[int]
    silent: dict[str, str]


class WaitingRecords:
    """Of the instances at these addresses. All raise ProxyError where none of them answers."""

    def __init__(self, addresses: Sequence[str], token: str | None) -> None:
        self._addresses, self._token = addresses, token

    def listed(self, filters: Mapping[str, str], limit: int) -> Answers:
        """The first `limit` records that wait, in the order of firing."""
        answers = self._together(lambda address: self._list(address, filters, limit))
        has_more = answers.has_more or len(answers.records) > limit
        records = sorted(answers.records, key=_place)[:limit]
        return answers._replace(records=records, has_more=has_more)

    def with_id(self, ident: str) -> Answers:
        """What waits with this id."""
        path = f"/records?{urlencode({'id': ident})}"

        def with_partitions(address: str) -> Answers:
            said = self._found(address, path)
            return said if said.partitions else said._replace(partitions=self._served(address))

        return self._together(with_partitions)

    def at_origin(self, origin: Origin, *, with_body: bool) -> Answers:
        """What has become of this ingress record, and what it holds."""
        query = "?body=true" if with_body else ""
        said = self._together(lambda at: self._found(at, f"/records/{quote(str(origin))}{query}"))
        return said._replace(partitions={origin.partition} if said.records else set())

    def counted(self) -> Counts:
        """How many wait for each target, those with most first."""
        replies, silent = ask_each(self._addresses, self._counts)
        by_target = Counter[str]()
        for said in replies:
            by_target.update(said["by_target"])
        others = sum(said["others"] for said in replies)
        covered = [said["partitions"] for said in replies]
        partitions = {number for numbers in covered for number in numbers}
        return Counts(dict(by_target.most_common()), others, partitions, repeated(covered), silent)

    def _together(self, asking: Callable[[str], Answers]) -> Answers:
        answers, silent = ask_each(self._addresses, asking)
        return Answers(
            [record for one in answers for record in one.records],
            {partition for one in answers for partition in one.partitions},
            silent,
            any(one.has_more for one in answers),
        )

    def _found(self, address: str, path: str) -> Answers:
        try:
            said = ask(address, path, self._token)
        except NotThere:
            return Answers([], set(), {})
        partitions = set(said.get("partitions", ()))
        return Answers(said.get("records", [said]), partitions, {})

    def _counts(self, address: str) -> dict[str, Any]:
        """Raises ProxyUnreachable for a proxy that does not say of which partitions."""
        said = ask(address, "/pending", self._token)
        if "partitions" not in said:
            raise too_old(address)
        return said

    def _served(self, address: str) -> set[int]:
        return set(self._counts(address)["partitions"])

    def _list(self, address: str, filters: Mapping[str, str], limit: int) -> Answers:
        """The first records of one instance."""
        records, partitions = list[Found](), set[int]()
        cursor: str | None = ""
        while cursor is not None and len(records) < limit:
            query = {**filters, "limit": str(min(limit - len(records), PAGE_RECORDS))}
            query |= {"cursor": cursor} if cursor else {}
            said = ask(address, f"/pending/records?{urlencode(query)}", self._token)
            records.extend(said["records"])
            partitions.update(said["partitions"])
            cursor = said["cursor"]
        return Answers(records, partitions, {}, cursor is not None)


def _place(record: Found) -> tuple[int, int, int]:
    """(fires, partition, offset); what does not fire comes last."""
    _topic, partition, offset = str(record["origin"]).rsplit("/", 2)
    fires_ms = record["fires"]
    return LAST if fires_ms is None else int(fires_ms), int(partition), int(offset)
