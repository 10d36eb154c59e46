"""The streaming query of an audit that goes on until it is stopped."""

from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.continuous.audit_topic import create_topic
from spark_jobs.continuous.batches import Batches, Publication
from spark_jobs.continuous.gauges import Gauges
from spark_jobs.continuous.state import Tally
from spark_jobs.evidence.audit_job import AuditJob
from spark_jobs.runtime.errors import SparkUnusable
from spark_jobs.runtime.failures import explained

CHECKPOINT: Final = "checkpoint"
STOPPED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: "
    "java.lang.InterruptedException"
)
"""By which Spark knows that a batch ended because the query was stopped, and is no error."""


class Pace(NamedTuple):
    """A batch every so many seconds, which reads so many records at once."""

    every_s: int
    max_offsets: int


class BatchUndone(Exception):
    """A batch ended early; the message is all that Spark gets to know of why."""


class ContinuousAudit:
    """A streaming query that audits, in a session that is there. Its state is `job.output`.

    The stream is a clock: that nothing arrives may be just what is wrong. What a batch reads, it
    reads by its state.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: AuditJob,
        publication: Publication,
        pace: Pace,
        gauges: Gauges,
    ) -> None:
        self._spark, self._job, self._pace = spark, job, pace
        self._publication, self._gauges = publication, gauges
        self._failed: Exception | None = None
        self._is_stopped = False
        self._query: StreamingQuery | None = None
        self.tally: Tally | None = None

    def start(self) -> None:
        """Start, or continue where the last one ended. Raises `AuditError`."""
        job, topic, pace = self._job, self._publication.audit_topic, self._pace
        self._failed, self._is_stopped = None, False
        if topic:
            create_topic(job.kafka, topic)
        batches = Batches(
            self._spark, job, self._publication, pace.max_offsets, self._show, self._go_on
        )
        self._gauges.show(batches.begin())
        clock = self._spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        self._query = (
            clock.writeStream.foreachBatch(lambda _, number: self._do(batches, number))
            .option("checkpointLocation", (job.output / CHECKPOINT).uri)
            .trigger(processingTime=f"{pace.every_s} seconds")
            .start()
        )

    def wait(self, timeout_s: float) -> bool:
        """Whether `stop` has ended it within so many seconds. Raises whatever else ended it."""
        assert self._query is not None, "it has not been started"
        with explained():
            try:
                has_ended = bool(self._query.awaitTermination(timeout_s))  # type: ignore[arg-type]
            except Exception:
                if self._failed is not None:
                    raise self._failed from None
                raise
        if has_ended and not self._is_stopped:
            raise self._failed or SparkUnusable(
                "The streaming query ended and did not say why.", "Start the audit again."
            )
        return has_ended

    def stop(self) -> None:
        """Stop it, in the midst of a batch if there is one: that will be done again."""
        self._is_stopped = True
        if self._query is not None:
            with explained():
                self._query.stop()

    def _do(self, batches: Batches, number: int) -> None:
        """Spark matches what is thrown here with a regular expression that overflows its stack on
        a long text, such as another Java exception, and then ends without saying why: so the error
        itself is raised in `wait`."""
        try:
            with explained():
                batches.do(number)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised in `wait`)
            self._failed = error
            raise BatchUndone(STOPPED if self._is_stopped else f"batch {number}") from None

    def _go_on(self) -> None:
        """Spark interrupts its own work only, and while a batch is planned there is none."""
        if self._is_stopped:
            raise BatchUndone(STOPPED)

    def _show(self, number: int, tally: Tally) -> None:
        self.tally = tally
        self._gauges.show(tally)
        judged, broken = sum(tally.totals.verdicts.values()), sum(tally.totals.violations.values())
        waiting = tally.totals.pending
        print(
            f"batch {number}: {judged:,} judged, {waiting:,} pending, {broken:,} violations",
            flush=True,
        )
