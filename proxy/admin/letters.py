"""The calls for dead letters: list, show, replay."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from proxy.admin import models
from proxy.admin.calls import (
    NO_CURSOR,
    REFUSED,
    CallerOf,
    CallRoute,
    Instant,
    Limit,
    PatternQuery,
    Place,
    SiteOf,
    Wait,
    fitting,
)
from proxy.admin.models import TOPIC, FilterText
from proxy.admin.problem import Problem, bad_request
from proxy.admin.record_content import content_of
from proxy.admin.replay_jobs import WantedReplay
from proxy.admin.threads import room_in
from proxy.admin.tokens import Caller, needs
from proxy.admin.topic_readers import Marks
from proxy.admin.whole_group import Owner, of_group
from proxy.config.settings import TopicSettings
from proxy.dead_letters.letter import LetterSummary, summary_of
from proxy.dead_letters.letter import Place as LetterPlace
from proxy.dead_letters.replay import ReplayOptions
from proxy.dead_letters.replay_plan import Mark, Selection, read_edits, read_rate, read_reasons
from proxy.protocol.policy import is_legal_topic

CURSOR: Final = re.compile(r"1(\.[0-9]{1,19}){1,1000}")
"""A cursor: the version of its format, then an offset for each partition. The list continues below
these offsets."""
PLACE: Final = re.compile(r"[0-9]{1,10}/[0-9]{1,18}")
READING: Final = "Two other calls are reading dead letters. Try again."

router = APIRouter(route_class=CallRoute, tags=["dead letters"], responses=REFUSED)
ReplayId = Annotated[
    str, Path(json_schema_extra={"pattern": "^[0-9a-f]{12}$"}, examples=["0f1e2d3c4b5a"])
]


@router.get("/dead-letters")
@needs("viewer")
def list_dead_letters(
    site: SiteOf,
    caller: CallerOf,
    topic: Annotated[
        str | None,
        WithJsonSchema({"type": "string", "pattern": TOPIC}),
        Query(description="The proxy's dead-letter topic (default), or `dlq.<group>`."),
    ] = None,
    reason: Annotated[
        FilterText | SkipJsonSchema[None],
        Query(
            description="A code of `timer-error`. For a group's letters, a shell pattern of the "
            "exception."
        ),
    ] = None,
    target: Annotated[
        PatternQuery,
        Query(
            description="A topic or a shell pattern. For a group's letters, the filter reads "
            "the topic from which the records first came."
        ),
    ] = None,
    since: Annotated[
        Instant,
        Query(description="Written at this time or later. Epoch milliseconds or RFC 3339."),
    ] = None,
    until: Annotated[
        Instant, Query(description="Written before this time. Epoch milliseconds or RFC 3339.")
    ] = None,
    limit: Limit = 100,
    cursor: Annotated[
        str | None,
        fitting(CURSOR, NO_CURSOR),
        WithJsonSchema({"type": "string", "pattern": f"^{CURSOR.pattern}$"}),
        Query(description="The `cursor` of the previous page."),
    ] = None,
) -> models.LetterPage:
    """List dead letters, newest first, page by page.

    Reading does not delay delivery. A page may be short or empty and still have a cursor. Then
    there is more to read. A letter that is there during the whole listing is on one of the pages.
    Within a partition of the topic, the later offset comes first. Two calls read at a time. Further
    calls get 503. Delivery comes first: a call pauses 3 s after each second of work.
    """
    topic = topic if topic is not None else site.settings.topics.dead_letters
    group = _group_of(topic, site.settings.topics)
    reasons = () if reason is None else (reason,)
    targets = () if target is None else (target,)
    selection = _checked(Selection(reasons, targets, (), since, until), group)
    if reason is not None and group is not None:
        caller.refuse_contents()
    ends = {} if cursor is None else dict(enumerate(map(int, cursor.split(".")[1:])))
    with room_in(site.free_readings, READING):
        page, marks = site.topics.page(group, selection, ends, limit)
    return models.LetterPage(
        topic=topic,
        letters=_listed(page.letters, marks or {}, caller, group),
        replays_known=marks is not None,
        cursor=_cursor(page.ends),
    )


def _cursor(ends: Mapping[int, int] | None) -> str | None:
    return None if ends is None else ".".join(["1", *(str(ends[one]) for one in sorted(ends))])


@router.get("/dead-letters/topics")
@needs("viewer")
def get_dead_letter_topics(site: SiteOf) -> models.LetterTopics:
    """List the topics of dead letters."""
    with room_in(site.free_readings, READING):
        return models.LetterTopics(topics=site.topics.topics())


@router.get("/dead-letters/{topic}/{partition}/{offset}")
@needs("viewer")
def get_dead_letter(site: SiteOf, caller: CallerOf, place: Place) -> models.Letter:
    """Show one dead letter and its content.

    A value that was too large for the dead-letter topic is read from the ingress, while the
    ingress keeps it.
    """
    caller.refuse_contents()
    group = _group_of(place.topic, site.settings.topics)
    with room_in(site.free_readings, READING):
        letter, mark, original = site.topics.letter(group, LetterPlace(*place[1:]))
    is_in_ingress = letter.value is None and original is not None
    shown = {
        **_head(summary_of(letter), mark),
        **content_of(letter.key, original if is_in_ingress else letter.value, letter.headers),
        "detail": letter.detail,
    }
    return models.Letter(
        **shown,
        topic=place.topic,
        meaning=letter.meaning if letter.is_ours else None,
        remedy=letter.remedy if letter.is_ours else None,
        value_in_ingress=is_in_ingress,
    )


@router.post("/dead-letters/replays")
@needs("operator")
def replay_dead_letters(site: SiteOf, body: models.ReplayBody, wait: Wait = 0) -> models.Replay:
    """Replay dead letters, or count them first.

    Filters and `places` choose the letters. Without any, all letters of the topic are replayed. In
    one transaction, each letter is written to the ingress and marked as replayed. So no letter is
    replayed twice, even if several processes replay at the same time, or a process is killed. Call
    again, and the replay continues. A replay runs in the called process, even if nobody waits for
    it. A process runs two jobs at a time, dry runs included. For each topic it runs one replay at
    a time, beside dry runs. If another process begins a replay of the same topic, the replay here
    ends.
    """
    return site.replays.start(wanted_by(body, site.settings.topics)).shown(wait)


@router.get("/dead-letters/replays/{id}")
@needs("viewer")
@of_group(Owner(models.Replay, "not-found"))
def get_replay(site: SiteOf, id: ReplayId, wait: Wait = 0) -> models.Replay:  # noqa: A002
    """Show the progress of a replay or a dry run.

    A process knows its own last 50 replays until the process ends.
    """
    return site.replays.find(id).shown(wait)


@router.delete("/dead-letters/replays/{id}")
@needs("operator")
@of_group(Owner(models.Replay, "not-found"))
def stop_replay(site: SiteOf, id: ReplayId, wait: Wait = 0) -> models.Replay:  # noqa: A002
    """Stop a replay after its current batch.

    Replayed letters stay replayed. If the replay has ended, the call changes nothing.
    """
    job = site.replays.find(id)
    job.stop()
    return job.shown(wait)


def wanted_by(body: models.ReplayBody, names: TopicSettings) -> WantedReplay:
    """Return the replay that a body asks for. Raises Problem."""
    group = _group_of(body.topic, names)
    patterns = tuple(body.reasons), tuple(body.targets), tuple(body.origins)
    selection = _checked(Selection(*patterns, body.since, body.until), group)
    try:
        edits = read_edits([f"{name}={text}" for name, text in body.set.items()], body.unset)
    except ValueError as error:
        raise Problem(409, "bad-edit", f"{error}.") from None
    try:
        rate = None if body.rate is None else read_rate(body.rate)
    except ValueError as error:
        raise bad_request(f"rate: {error}.") from None
    places = None if body.places is None else tuple(map(_place, body.places))
    options = ReplayOptions(edits, body.again, body.limit, rate)
    return WantedReplay(body.topic, group, selection, places, options, body.dry_run)


def _place(text: str) -> LetterPlace:
    if PLACE.fullmatch(text) is None:
        raise bad_request(
            f"places: {text[:60]!r} is no place. Write partition/offset, for example 0/17."
        )
    return LetterPlace(*map(int, text.split("/")))


def _group_of(topic: str, names: TopicSettings) -> str | None:
    if topic == names.dead_letters:
        return None
    group = topic.removeprefix(names.dlq_prefix)
    if group == topic or not is_legal_topic(group):
        detail = (
            f"{topic[:249]} is no topic of dead letters. The proxy's letters are in "
            f"{names.dead_letters}, and a group's letters are in {names.dlq_prefix}<group>."
        )
        raise Problem(404, "no-such-topic", detail)
    return group


def _checked(selection: Selection, group: str | None) -> Selection:
    since_ms, until_ms = selection.from_ms, selection.to_ms
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise Problem(409, "nothing-between", "`since` must be before `until`.")
    try:
        if group is None:
            read_reasons(selection.reasons)
    except ValueError as error:
        raise Problem(404, "no-such-reason", f"{error}.") from None
    return selection


def _head(one: LetterSummary, mark: Mark | None) -> dict[str, Any]:
    return {
        "partition": one.place.partition,
        "offset": one.place.offset,
        "written": one.timestamp_ms,
        "reason": one.reason,
        "detail": one.detail,
        "target": one.target,
        "origin": one.origin,
        "first_origin": one.first_origin,
        "replayed": None if mark is None else {"at": mark.at_ms, "as": mark.replayed_as},
    }


def _listed(
    letters: Sequence[LetterSummary], marks: Marks, caller: Caller, group: str | None
) -> list[models.ListedLetter]:
    """Return letters as the API lists them.

    A caller without the right to read contents gets no keys. The caller gets only the class of an
    exception, because the message may quote the record."""
    listed = []
    for one in letters:
        key = None if one.key is None else one.key.decode("utf-8", "backslashreplace")
        shown = {**_head(one, marks.get(one.place)), "key": key, "bytes": one.value_bytes}
        if not caller.contents:
            shown["key"] = None
            if group is not None:
                exception = (one.reason or "").partition(":")[0]
                shown |= {"detail": None, "reason": exception or None}
        listed.append(models.ListedLetter(**shown))
    return listed
