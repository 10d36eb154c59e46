"""Writer of the blocks in docs/audit-violations.md: `python -m tests.spark.violation_examples`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from spark_jobs.runtime.session import spark_session
from tests.spark.violation_examples.judging_examples import judged
from tests.spark.violation_examples.page import PAGE, block, with_blocks

with TemporaryDirectory() as folder:
    few = {"spark.sql.shuffle.partitions": "2"}
    found = judged(spark_session("violation examples", "local[2]", "1g", few), Path(folder))
blocks = {one.name: block(one) for one in found}
PAGE.write_text(with_blocks(PAGE.read_text("utf-8"), blocks), "utf-8")
