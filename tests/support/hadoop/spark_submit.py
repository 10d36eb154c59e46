"""Program `spark-submit`, run from a folder of links to the installed Spark. It writes nothing into
the installed Spark."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

from proxy.embedded.server import GuardedProcess
from spark_jobs.runtime.session import connector_jars, java_home
from tests.support.hadoop.hadoop_jars import SPARK_HOME
from tests.support.hadoop.hadoop_server import HOST, LOGGING, hadoop_environment

REPOSITORY: Final = Path(__file__).parents[3]
SHIPPED: Final = ("proxy", "storage", "spark_jobs")
LINKED: Final = ("bin", "jars", "python", "sbin")
LOG: Final = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
FOR_FEW: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings that are faster for few records: few partitions, and no compiled code."""
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": LOG,
    "spark.executor.extraJavaOptions": LOG,
}
LOCAL_CLUSTER: Final = {"spark.master": "local-cluster[3,2,2048]", "spark.driver.host": HOST}


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str


def on_yarn() -> dict[str, str]:
    """Return the settings of cluster mode on YARN. The machine has Spark and Python already."""
    containers = {
        "JAVA_HOME": str(java_home()),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_IP": HOST,
    }
    return {
        "spark.master": "yarn",
        "spark.submit.deployMode": "cluster",
        "spark.executor.instances": "3",
        "spark.executor.cores": "2",
        "spark.executor.memory": "1g",
        # An audit with violations exits with code 2. YARN would run it again.
        "spark.yarn.maxAppAttempts": "1",
        # Use the local jars. Otherwise Spark uploads half a gigabyte each time.
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
        "spark.pyspark.python": sys.executable,
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in containers.items()},
        **{f"spark.executorEnv.{name}": value for name, value in containers.items()},
    }


class SparkSubmit:
    """Runs of spark-submit with the Hadoop settings in `conf`. They write all files into
    `folder`."""

    def __init__(self, folder: Path, conf: Path) -> None:
        self._folder, self._conf, self._numbers = folder, conf, count()
        self._home = folder / "spark"
        self._home.mkdir(parents=True)
        for name in LINKED:
            (self._home / name).symlink_to(SPARK_HOME / name)
        self._packages = folder / "packages.zip"
        pack(self._packages)

    def run(
        self,
        program: Path,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        limit_s: float,
    ) -> Ended:
        work = self._folder / f"submitted-{next(self._numbers)}"
        work.mkdir()
        all_settings = {**QUIET, **FOR_FEW, **settings, "spark.local.dir": str(work)}
        given = [part for pair in all_settings.items() for part in ("--conf", "=".join(pair))]
        jars = ",".join(map(str, connector_jars()))
        command = [
            *(str(self._home / "bin" / "spark-submit"), "--driver-memory", "1g", "--jars", jars),
            *("--py-files", str(self._packages), *given, str(program), *arguments),
        ]
        return _ended(command, self._environment(), work, limit_s)

    def _environment(self) -> dict[str, str]:
        """Return the environment without PYTHONPATH, because our packages are shipped."""
        all_of_it = hadoop_environment(self._conf)
        kept = {name: value for name, value in all_of_it.items() if name != "PYTHONPATH"}
        return {**kept, "SPARK_HOME": str(self._home), "PYSPARK_PYTHON": sys.executable}


def pack(target: Path) -> None:
    with ZipFile(target, "w", ZIP_DEFLATED) as packed:
        for package in SHIPPED:
            for file in sorted((REPOSITORY / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    packed.write(file, file.relative_to(REPOSITORY))


def _ended(
    command: Sequence[str], environment: Mapping[str, str], work: Path, limit_s: float
) -> Ended:
    """Run the command in `work`, because Spark 4.0.0 leaves a folder `artifacts` there
    (SPARK-52396)."""
    output, errors = work / "stdout", work / "stderr"
    with output.open("wb") as stdout, errors.open("wb") as stderr, chdir(work):
        process = GuardedProcess(command, environment=environment, stdout=stdout, stderr=stderr)
        try:
            exit_code = process.wait(limit_s)
        finally:
            process.stop()
    return Ended(exit_code, output.read_text("utf-8"), errors.read_text("utf-8"))
