"""What a list of dead letters is asked for, as text of a query. Raises Problem."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from proxy.admin.exchange import Problem, bad_request
from proxy.admin.listing.filters import instant_ms, pattern_of
from proxy.config.settings import TopicSettings
from proxy.dead_letters.replay_plan import Selection, read_reasons
from proxy.protocol.policy import is_legal_topic

CURSOR: Final = re.compile(r"1(\.[0-9]{1,19}){1,1000}")
"""Its version, then for each partition the offset below which the list goes on."""
MOST_PARTITIONS: Final = 1_000
LONGEST_REASON: Final = 249
FILTERS: Final = ("reason", "target", "since", "until")


def group_of(topic: str, names: TopicSettings) -> str | None:
    """Whose dead letters are in the topic: a consumer group's, or, None, the proxy's own."""
    if topic == names.dead_letters:
        return None
    group = topic.removeprefix(names.dlq_prefix)
    if group == topic or not is_legal_topic(group):
        detail = (
            f"{topic[:249]} holds no dead letters: those of the proxy are in {names.dead_letters}, "
            f"those of a group's consumers in {names.dlq_prefix}<group>."
        )
        raise Problem(404, "no-such-topic", detail)
    return group


def selection_by(query: Mapping[str, str], group: str | None) -> Selection:
    """The filters among `query`."""
    since, until = query.get("since"), query.get("until")
    return selected(
        [query["reason"]] if "reason" in query else (),
        [query["target"]] if "target" in query else (),
        (),
        None if since is None else instant_ms("since", since),
        None if until is None else instant_ms("until", until),
        group,
    )


def selected(
    reasons: Iterable[str],
    targets: Iterable[str],
    origins: Iterable[str],
    since_ms: int | None,
    until_ms: int | None,
    group: str | None,
) -> Selection:
    """Reasons of the proxy's own letters are codes; those of a group's are patterns."""
    codes = tuple(reasons)
    if any(not 1 <= len(code) <= LONGEST_REASON for code in codes):
        raise bad_request(f"A reason has 1 to {LONGEST_REASON} characters.")
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise Problem(409, "nothing-between", "`since` has to be before `until`.")
    try:
        checked = codes if group is not None else read_reasons(codes)
    except ValueError as error:
        raise Problem(404, "no-such-reason", f"{error}.") from None
    patterns = tuple(map(pattern_of, targets))
    return Selection(checked, patterns, tuple(origins), since_ms, until_ms)


def ends_of(cursor: str | None) -> dict[int, int]:
    """Below which offset the list goes on, by partition."""
    if cursor is None:
        return {}
    if CURSOR.fullmatch(cursor) is None:
        raise bad_request(
            "The `cursor` is none that this call has given: use it as it was, or leave it out to "
            "begin anew."
        )
    return dict(enumerate(map(int, cursor.split(".")[1:])))


def cursor_of(ends: Mapping[int, int] | None) -> str | None:
    """The same as text; null when there is no more."""
    if ends is None:
        return None
    return ".".join(["1", *(str(ends[partition]) for partition in sorted(ends))])
