"""What a call wants replayed, read strictly from its body. Raises Problem."""

import re
from typing import Annotated, Final, NamedTuple

from pydantic import BeforeValidator, Field, StringConstraints

from proxy.admin.dead_letters.letter_queries import group_of, selected
from proxy.admin.exchange import Problem, bad_request
from proxy.admin.query_values import Body, whole
from proxy.config.settings import TopicSettings
from proxy.dead_letters.letter import Place
from proxy.dead_letters.replay import ReplayOptions
from proxy.dead_letters.replay_plan import Rate, Selection, read_edits, read_rate
from proxy.protocol.times import LATEST_MS

MOST_PLACES: Final = 1_000
MOST_FILTERS: Final = 20
PLACE: Final = re.compile(r"[0-9]{1,10}/[0-9]{1,18}")

Moment = Annotated[int | None, BeforeValidator(whole)]
Count = Annotated[int | None, BeforeValidator(whole)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=249)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[^=]{1,249}$")]
HeaderText = Annotated[str, StringConstraints(max_length=4096)]


class ReplayBody(Body):
    """Body of a replay."""

    topic: str
    places: list[str] | None = Field(None, min_length=1, max_length=MOST_PLACES)
    reasons: list[Text] = Field([], max_length=MOST_FILTERS)
    targets: list[Text] = Field([], max_length=MOST_FILTERS)
    origins: list[Text] = Field([], max_length=MOST_FILTERS)
    since: Moment = Field(None, ge=0, le=LATEST_MS)
    until: Moment = Field(None, ge=0, le=LATEST_MS)
    set: dict[HeaderName, HeaderText] = Field({}, max_length=MOST_FILTERS)
    unset: list[HeaderName] = Field([], max_length=MOST_FILTERS)
    limit: Count = Field(None, ge=1, le=10**15)
    rate: str | None = None
    again: bool = False
    dry_run: bool


class WantedReplay(NamedTuple):
    """Letters of `topic` (`group`'s), those at `places` alone where it is not None."""

    topic: str
    group: str | None
    selection: Selection
    places: tuple[Place, ...] | None
    options: ReplayOptions
    is_dry: bool


def wanted_by(body: ReplayBody, names: TopicSettings) -> WantedReplay:
    """The replay that a body asks for."""
    group = group_of(body.topic, names)
    selection = selected(body.reasons, body.targets, body.origins, body.since, body.until, group)
    try:
        edits = read_edits([f"{name}={text}" for name, text in body.set.items()], body.unset)
    except ValueError as error:
        raise Problem(409, "bad-edit", f"{error}.") from None
    options = ReplayOptions(edits, body.again, body.limit, _rate(body.rate))
    places = None if body.places is None else tuple(map(_place, body.places))
    return WantedReplay(body.topic, group, selection, places, options, body.dry_run)


def _rate(text: str | None) -> Rate | None:
    try:
        return None if text is None else read_rate(text)
    except ValueError as error:
        raise bad_request(f"rate: {error}.") from None


def _place(text: str) -> Place:
    if PLACE.fullmatch(text) is None:
        raise bad_request(f"places: {text[:60]!r} does not read partition/offset (0/17).")
    partition, _, offset = text.partition("/")
    return Place(int(partition), int(offset))
