"""Errors of the jobs. A job prints their sentences on stderr and exits with their `exit_code`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from proxy.errors import ProxyError

BEGIN_ANEW: Final = "Audit without --continue and --continue-from, or name another --output."


class AuditError(ProxyError):
    """The audit could not be made."""


class SparkUnusable(AuditError):
    """Spark, its Java or its connector to Kafka is missing or does not start."""


class MemoryExhausted(SparkUnusable):
    """A task of Spark needed more memory than it has. Spark itself continues."""


class BrokerUnreachable(AuditError):
    """No broker answered."""


class BrokerRefused(AuditError):
    """The broker rejects the audit. Waiting does not help."""


class TopicMissing(AuditError):
    """A required topic does not exist."""


class NothingCommitted(AuditError):
    """The proxy's consumer group has no committed offset."""


class NotOurs(AuditError):
    """Metadata, settings or a topic do not come from a proxy of this version."""


class RangeRefused(AuditError):
    """The range of offsets is not in the log, or cannot be read."""


class IngressGrew(AuditError):
    """Partitions were added to the ingress during the audit."""


class StillOpen(AuditError):
    """A transaction stayed open for too long."""


class ResultsRefused(AuditError):
    """The results cannot be written to this place, or read from it."""


class QuestionRefused(AuditError):
    """The question does not exist, or does not have these parameters."""


CAUSES: Final = (
    (
        ("No space left on device", "Disk quota exceeded"),
        ResultsRefused(
            "The disk is full.",
            "Make room, or name another --output (and another "
            "folder for sorting in SPARK_LOCAL_DIRS). Run the audit again.",
        ),
    ),
    (
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND"),
        ResultsRefused(
            "Files that were just written do not exist: Spark's workers do not share the place, "
            "or somebody removed files from it.",
            "Name an --output that all workers see, such as one of hdfs:// or s3a://.",
        ),
    ),
    (
        (
            "DELTA_VERSION_NOT_FOUND",
            "Cannot time travel",
            "DELTA_MISSING_VERSION",
            "RESTORE_MISSING",
        ),
        ResultsRefused("The open records of the earlier audit no longer exist.", BEGIN_ANEW),
    ),
    (
        ("KAFKA_DATA_LOSS", "Some data may have been lost", "OffsetOutOfRangeException"),
        RangeRefused("Retention deleted records while they were read.", "Run the audit again."),
    ),
    (
        ("OutOfMemoryError", "CANNOT_ACQUIRE_MEMORY"),
        MemoryExhausted("Spark ran out of memory.", "Give it more with --driver-memory."),
    ),
    (
        ("DATA_SOURCE_NOT_FOUND", "Cannot find catalog plugin class", "io.delta.sql"),
        SparkUnusable(
            "Spark does not have its connector to Kafka, or Delta Lake.",
            "Add `--jars $(python -m spark_jobs.jars)` to spark-submit.",
        ),
    ),
    (
        ("Received exception when fetching the next record", "CorruptRecordException"),
        RangeRefused(
            "A record batch of the ingress cannot be read.",
            "If the proxy stops at it, let the proxy skip it: `kafka-delay-proxy skip`. "
            "Otherwise leave it out with --offsets.",
        ),
    ),
    (
        ("SaslAuthenticationException", "SslAuthenticationException", "AuthorizationException"),
        BrokerRefused(
            "The broker refuses the Java client inside Spark.",
            "Give its login and certificates in --kafka. Its user needs Read on the topics.",
        ),
    ),
    (
        ("kafka.common.errors.TimeoutException", "kafka.common.errors.DisconnectException"),
        BrokerUnreachable("The broker stopped answering.", "Run the audit again."),
    ),
)
"""Parts of Spark's messages, and the error to raise for each. The first match applies."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of Spark or the disk into an `AuditError` if the cause is known."""
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkUnusable(
            "Spark's Java process has ended.",
            "Its last messages are above. Without any, the system may have killed it for lack of "
            "memory: give less with --driver-memory.",
        ) from error
    except (PySparkException, Py4JError, OSError) as error:
        for signs, cause in CAUSES:
            if any(sign in str(error) for sign in signs):
                raise type(cause)(cause.found, cause.remedy) from error
        raise
