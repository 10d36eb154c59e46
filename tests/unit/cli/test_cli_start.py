"""A command loads only the modules it needs, because others slow its start."""

import subprocess
import sys

OF_RUN_ALONE = ("proxy.session", "proxy.recovery", "proxy.admin.app", "proxy.worker.worker")
OF_STORES_ALONE = ("storage.opening", "storage.wheel", "storage.rocksdb")
OF_THE_AUDIT_ALONE = ("pyspark", "spark_jobs")
OF_THE_ADMIN_PORT_ALONE = ("fastapi", "starlette", "uvicorn")
ASK = "import sys, proxy.cli; print(*sorted(sys.modules))"


def test_the_command_line_loads_neither_the_worker_nor_stores_nor_spark() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = (*OF_RUN_ALONE, *OF_STORES_ALONE, *OF_THE_AUDIT_ALONE, *OF_THE_ADMIN_PORT_ALONE)
    assert [name for name in loaded if name.startswith(heavy)] == []
