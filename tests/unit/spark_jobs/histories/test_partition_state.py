"""An audit's knowledge of a partition before reading."""

import pytest

from spark_jobs.histories.reader import Span, known_from
from spark_jobs.kafka.snapshot import PolicyFrom


@pytest.mark.parametrize(
    ("span", "settings", "expected"),
    [
        (Span(7, 7), 0, 7),
        (Span(0, 0), 0, 0),
        (Span(7, 7), 50, 50),
        (Span(7, 60), 50, 7),
    ],
    ids=["what was not deleted", "all", "from the settings on", "read earlier"],
)
def test_records_are_known_from_where_settings_are_known_or_were_when_they_were_read(
    span: Span, settings: int, expected: int
) -> None:
    assert known_from(span, [PolicyFrom(settings, "digest")]) == expected
