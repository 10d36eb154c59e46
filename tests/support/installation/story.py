"""Test with named records for one proxy, and the end of each record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules
from tests.support.oracle.ends import Ends
from tests.support.oracle.ingress_witness import IngressWitness
from tests.support.records import Headers, Incoming, Outgoing

NAME = "name"


class Story:
    """Records with a header `name`, which their successors keep. `settings` are the proxy's
    settings. `rules` say the same to the judge."""

    def __init__(self, installation: Installation, rules: Rules, **settings: Any) -> None:
        self.installation = installation
        self.proxy: ProxyProcess = installation.proxy(**settings)
        self.rules = rules
        self.ends = Ends()
        self._told: list[Outgoing] = []

    def tell(self, name: str, **asked: bytes | str) -> None:
        self.ask(name, asked)

    def ask(
        self,
        name: str,
        asked: Mapping[str, bytes | str],
        *,
        key: bytes | None = b"key",
        partition: int = 0,
    ) -> None:
        self.tell_record(self.record(name, asked, key=key, partition=partition))

    def tell_record(self, record: Outgoing) -> None:
        self._told.append(record)

    def record(
        self,
        name: str,
        asked: Mapping[str, bytes | str],
        *,
        key: bytes | None = b"key",
        partition: int = 0,
    ) -> Outgoing:
        texts = {n: v.encode() if isinstance(v, str) else v for n, v in asked.items()}
        headers: Headers = [(f"timer-{n.replace('_', '-')}", raw) for n, raw in texts.items()]
        value = f"{name} and its value".encode()
        return Outgoing(key, value, [*headers, (NAME, name.encode())], partition)

    def send(self) -> None:
        told, self._told = self._told, []
        self.installation.send(told)

    def end(self, timeout_s: float = 180, witness: IngressWitness | None = None) -> None:
        self.send()
        self.ends = self.installation.judge(timeout_s, self.rules, witness)

    def records(self, name: str) -> dict[str, Incoming]:
        found = [
            (record.partition, record.offset, place, record)
            for place, record in self.ends.ingress.items()
            if record.header(NAME) == name.encode()
        ]
        return {place: record for *_, place, record in sorted(found, key=lambda row: row[:2])}

    def said(self, name: str) -> list[str]:
        said = self.ends.said
        return [said[place][0] for place in self.records(name)]

    def details(self, name: str) -> list[str]:
        said = self.ends.said
        return [said[place][1] for place in self.records(name)]

    def delivered(self, name: str) -> list[Incoming]:
        return [
            placed.record
            for place in self.records(name)
            for placed in self.ends.deliveries.get(place, ())
        ]

    def reasons(self, name: str) -> list[str]:
        return [(letter.header("timer-error") or b"").decode() for letter in self.letters(name)]

    def letters(self, name: str) -> list[Incoming]:
        return [
            letter
            for place in self.records(name)
            for letter in self.ends.dead_letters.get(place, ())
        ]

    def topics(self, name: str) -> list[str]:
        return [
            placed.topic
            for place in self.records(name)
            for placed in self.ends.deliveries.get(place, ())
        ]

    def waited_ms(self, name: str) -> int:
        (record,) = self.delivered(name)
        first = next(iter(self.records(name).values()))
        return int(record.header("timer-due") or b"") - first.timestamp_ms
