"""Known Spark errors become sentences. Others stay unchanged."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from spark_jobs.runtime.errors import (
    AuditError,
    BrokerRefused,
    BrokerUnreachable,
    RangeRefused,
    ResultsRefused,
    SparkUnusable,
    explained,
)

KAFKA = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("thrown", "meaning", "says"),
    [
        (OSError(28, "No space left on device"), ResultsRefused, "--output"),
        (Py4JError("Caused by: java.io.IOException: Disk quota exceeded"), ResultsRefused, "full"),
        (Py4JError("[KAFKA_DATA_LOSS] ..."), RangeRefused, "Retention"),
        (Py4JError("java.lang.OutOfMemoryError: Java heap space"), SparkUnusable, "--driver-mem"),
        (
            Py4JError("Received exception when fetching the next record from x-0"),
            RangeRefused,
            "skip",
        ),
        (Py4JError(f"{KAFKA}.TopicAuthorizationException: x"), BrokerRefused, "Read"),
        (Py4JError(f"{KAFKA}.TimeoutException: Timed out"), BrokerUnreachable, "answering"),
        (Py4JNetworkError("Answer from Java side is empty"), SparkUnusable, "process has ended"),
        (ConnectionRefusedError(111, "Connection refused"), SparkUnusable, "process has ended"),
    ],
)
def test_known_causes_are_told_with_what_to_do(
    thrown: Exception, meaning: type[AuditError], says: str
) -> None:
    with pytest.raises(meaning, match=says) as told, explained():
        raise thrown
    assert told.value.__cause__ is thrown


@pytest.mark.parametrize(
    "thrown",
    [
        Py4JError("java.util.concurrent.TimeoutException: Futures timed out"),
        FileNotFoundError("elsewhere"),
        ValueError("No space left on device"),
        RangeRefused("As it was said."),
    ],
)
def test_unknown_causes_are_left_as_they_are(thrown: Exception) -> None:
    with pytest.raises(type(thrown)) as told, explained():
        raise thrown
    assert told.value is thrown
