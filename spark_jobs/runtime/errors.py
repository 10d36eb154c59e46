"""Errors a person meets: each says what was found, where, and what to do about it.

A job prints the message of an `AuditError` as it is, on stderr, and ends with its `exit_code`.
"""

from typing import Final

from proxy.errors import ProxyError

BEGIN_ANEW: Final = "Audit without --continue and --continue-from, or name another --output."


class AuditError(ProxyError):
    """Root of all errors that are meant to be read: the audit could not be made."""


class SparkUnusable(AuditError):
    """Spark, its Java or its connector to Kafka is not there or does not start."""


class MemoryExhausted(SparkUnusable):
    """A task of Spark needed more memory than it has. Spark itself goes on."""


class BrokerUnreachable(AuditError):
    """No broker answered."""


class BrokerRefused(AuditError):
    """The broker does not let the audit in: waiting does not help."""


class TopicMissing(AuditError):
    """A topic that the audit cannot do without does not exist."""


class NothingCommitted(AuditError):
    """The group has no committed offset: no proxy has served this ingress topic."""


class NotOurs(AuditError):
    """What stands at the broker was not written by a proxy of this version, or not for this topic.

    Metadata that cannot be read, a topic created anew, settings that are gone.
    """


class RangeRefused(AuditError):
    """The range asked for is not in the log, or cannot be read."""


class IngressGrew(AuditError):
    """The ingress got partitions meanwhile: where the proxy stands in these was not asked."""


class StillOpen(AuditError):
    """A transaction stayed open: what it wrote can be neither counted nor left out."""


class ResultsRefused(AuditError):
    """The results cannot be written to this folder, or are not there to be read."""


class QuestionRefused(AuditError):
    """There is no such question, or it cannot be asked with these values."""
