"""Answers for the whole group: the answers of all instances to one call, made into one."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends, Request, Response

from proxy.admin.answers import Answer, OfGroup, Unanswered
from proxy.admin.calls import Site, json_reply
from proxy.admin.models import Refused
from proxy.admin.peers import ANSWER_WITHIN_S, Asker, Replies, Reply
from proxy.admin.problem import Problem

OWNER_WITHIN_S: Final = 15.0
"""A peer gets this much time to answer, plus the time that the caller's `wait` allows."""

A = TypeVar("A", bound=OfGroup)
F = TypeVar("F", bound=Callable[..., Any])


def of_group(kind: "Total[Any] | Owner") -> Callable[[F], F]:
    """Mark a call whose answer is made from the answers of all instances."""

    def mark(call: F) -> F:
        vars(call)["of_group"] = kind
        return call

    return mark


@dataclass(frozen=True, slots=True)
class Others:
    """The other instances, which a call asks in the name of its caller."""

    site: Site
    asker: Asker
    is_alone: bool
    """Whether the caller wants the answer of this instance only."""
    method: str
    path: str
    """The path and query of the call."""

    @classmethod
    def of(cls, request: Request) -> "Others":
        state, query = request.state, request.url.query
        path = request.scope["path"] + (f"?{query}" if query else "")
        return cls(state.site, state.asker, state.is_alone, request.method, path)

    def ask(self, path: str, body: object = None, within_s: float = ANSWER_WITHIN_S) -> Replies:
        """Ask all others. A call with a body is a POST."""
        if self.is_alone:
            return Replies([], {})
        method, said = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
        return self.site.peers.ask(self.asker, method, path, said, within_s)

    def own(self, response: Response) -> Reply:
        said = json.loads(bytes(response.body))
        return Reply(self.site.settings.instance_name, None, response.status_code, said)

    @property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.path.partition("?")[2], keep_blank_values=True))


def _unchanged(answer: A, _query: Mapping[str, str]) -> A:
    return answer


class Total(Generic[A]):
    """The answer of a call as the sum of all instances' answers.

    `finish` gets the sum and the query. It may raise Problem."""

    def __init__(
        self,
        kind: type[A],
        add: Callable[[A, A], A],
        finish: Callable[[A, Mapping[str, str]], A] = _unchanged,
        within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._kind, self._add, self._finish, self.within_s = kind, add, finish, within_s

    def answer(self, request: Request, own: Response, _body: bytes) -> Response:
        others = Others.of(request)
        if 400 <= own.status_code < 500:
            return own
        replies = others.ask(others.path, within_s=self.within_s)
        total = self.total(others, [others.own(own), *replies.answers], replies.silent)
        return own if total is None else json_reply(total.status_code(), total)

    def with_others(self, others: Others, own: A, path: str, body: object) -> A:
        """Return the sum of this instance's answer and the others' answers to a POST."""
        if others.is_alone:
            return own
        replies = others.ask(path, body, self.within_s)
        first = Reply(
            others.site.settings.instance_name,
            None,
            200,
            own.model_dump(mode="json", exclude_unset=True),
        )
        total = self.total(others, [first, *replies.answers], replies.silent)
        return own if total is None else total

    def total(
        self, others: Others, replies: Iterable[Reply], unanswered: Mapping[str, str]
    ) -> A | None:
        """Return the sum of the replies, with a note of who is missing. Return None if no reply can
        be used."""
        total: A | None = None
        silent, names = dict(unanswered), list[str]()
        for reply in replies:
            try:
                if reply.status >= 300:
                    raise ValueError(reply.detail)
                answer = self._kind.model_validate(reply.said, extra="ignore")
                total = answer if total is None else self._add(total, answer)
                names.append(reply.instance)
            except ValueError as error:
                silent[reply.instance] = _reason(error)
        if total is None:
            return None
        say_missing(total, others.site, silent, names)
        return self._finish(total, others.query)


def say_missing(
    total: OfGroup, site: Site, silent: Mapping[str, str], names: Sequence[str]
) -> None:
    """Set whether an answer is complete, and who did not answer."""
    silent = {**silent, **site.peers.strangers(names)}
    total.unanswered = [Unanswered(instance=name, reason=why) for name, why in silent.items()]
    covered = total.covered()
    if covered is None:
        total.complete = not silent
        return
    facts = site.peers.facts()
    total.complete = facts is not None and sorted(covered) == [*range(facts.partitions)]
    total.cover(sorted(set(covered)))


def _reason(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    return f"Its answer does not fit: {errors()[0]['msg']}." if errors else str(error)


class Owner:
    """The answer of the one instance that has a record or a job.

    Other instances answer 404 with the code `elsewhere`."""

    def __init__(self, kind: type[Answer], elsewhere: str = "not-served-here") -> None:
        self._kind, self._elsewhere = kind, elsewhere

    def answer(self, request: Request, own: Response, body: bytes) -> Response:
        others = Others.of(request)
        if not self._is_elsewhere(others.own(own)):
            return own
        wait_s = int(others.query.get("wait", "0s").removesuffix("s"))
        replies = others.site.peers.ask(
            others.asker, others.method, others.path, body, OWNER_WITHIN_S + wait_s
        )
        found = [reply for reply in replies.answers if not self._is_elsewhere(reply)]
        for reply in sorted(found, key=lambda one: one.status):
            kind = self._kind if reply.status < 300 else Refused
            try:
                return json_reply(reply.status, kind.model_validate(reply.said, extra="ignore"))
            except ValueError as error:
                replies.silent[reply.instance] = _reason(error)
        if replies.silent:
            who = " ".join(f"{name}: {why}" for name, why in replies.silent.items())
            detail = f"An instance that did not answer may have it. {who}"
            raise Problem(503, "unanswered", detail)
        return own

    def _is_elsewhere(self, reply: Reply) -> bool:
        return reply.status == 404 and reply.said.get("error") == self._elsewhere


async def _others_of(request: Request) -> Others:
    return Others.of(request)


OthersOf = Annotated[Others, Depends(_others_of)]
