"""Writer of the blocks in PAGE and BLOCKS: `python -m tests.spark.violation_examples`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from spark_jobs.runtime.session import spark_session
from tests.spark.violation_examples.judging_examples import judged
from tests.spark.violation_examples.page import block, write_blocks

with TemporaryDirectory() as folder:
    few = {"spark.sql.shuffle.partitions": "2"}
    found = judged(spark_session("violation examples", "local[2]", "1g", few), Path(folder))
write_blocks({one.name: block(one) for one in found})
