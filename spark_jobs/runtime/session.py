"""The Spark session of a job: Java, jars, settings."""

import atexit
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from proxy.embedded.jars import (
    CacheUnusable,
    JarsUnavailable,
    JavaMissing,
    cache_folder,
    ensure_all,
    jars_of,
    java,
)
from proxy.errors import ExtraMissing
from spark_jobs.runtime.errors import SparkUnusable

# The connector's jars are pinned by a lock file, and lie in the user's cache.

LOCK_NAME: Final = "connector-jars.lock"
NAME: Final = "Spark's Kafka connector"


def connector_jars() -> list[Path]:
    """Return the connector's jars. Fetch missing jars. Raises `SparkUnusable`."""
    lock = resources.files("spark_jobs.runtime").joinpath(LOCK_NAME).read_text("utf-8")
    try:
        return ensure_all(NAME, jars_of(lock))
    except (CacheUnusable, ExtraMissing, JarsUnavailable) as error:
        raise SparkUnusable(error.found, error.remedy) from error


# The Java that runs Spark: the user's own if it is suitable, else the packaged one. Spark's
# launcher always asks for a module that the packaged Java lacks. So a folder in the user's cache
# holds a script `bin/java`, which drops that option and starts the packaged Java
# (docs/audit.md#what-it-needs).

MODULE: Final = "--add-modules=jdk.incubator.vector"
VERSIONS: Final = frozenset({"17", "21"})
ASK_TIMEOUT_S: Final = 30


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for JAVA_HOME. Raises `SparkUnusable`.
    If the folder in the environment is suitable, return it, else the folder with our script.
    """
    named = environment.get("JAVA_HOME", "")
    if named and _serves(Path(named)):
        return Path(named)
    try:
        return _wrapped(java(), cache_folder().parent)
    except (ExtraMissing, JavaMissing) as missing:
        raise SparkUnusable(missing.found, missing.remedy) from missing
    except OSError as error:
        raise SparkUnusable(
            f"The cache folder {cache_folder().parent} cannot be used: {error}.",
            "Make it writable, or name another folder in XDG_CACHE_HOME. Or name a Java 17 or 21 "
            "in JAVA_HOME.",
        ) from error


def _serves(home: Path) -> bool:
    try:
        asked = subprocess.run(
            [str(home / "bin" / "java"), MODULE, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r'version "(\d+)', asked.stderr)
    return version is not None and version[1] in VERSIONS


def _wrapped(program: Path, cache: Path) -> Path:
    script = (
        f'#!/bin/sh\nfor one do shift; [ "$one" = {MODULE} ] || set -- "$@" "$one"; done\n'
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    home = cache / f"java-{sha256(script.encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    if not os.access(wrapper, os.X_OK) or wrapper.read_text("utf-8") != script:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Another job may start now. It must find the old file or the complete new file.
        number, name = tempfile.mkstemp(dir=wrapper.parent, prefix=".java-", text=True)
        with os.fdopen(number, "w", encoding="utf-8") as arriving:
            arriving.write(script)
        Path(name).chmod(0o755)
        Path(name).replace(wrapper)
    return home


SPARK: Final = "4.0."
HERE: Final = "127.0.0.1"
ONE_COMPILER: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""With two compilers, a small audit spends half its time on compiling code twice.
With one compiler Java reserves 48 MB for code by default, and an audit needs more.
"""
TWO_COMPILERS: Final = (
    "-XX:-DontCompileHugeMethods",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Spark generates hundreds of long methods that run for seconds. Java must compile them, too.
With Java's own thresholds the second compiler takes half a core. So the thresholds here are ten
times as high. Then the second compiler compiles only the methods that run most.
"""
COLLECTOR: Final = "-XX:+UseParallelGC"
"""Most objects of a job live for less than a second. Long pauses of the collector do not matter."""
_OTHER_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_SETTINGS: Final = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
)
LOCAL_PARTITIONS: Final = "32"
"""Used until the number of records is known.
Spark's default of 200 partitions takes a minute even if there are no records.
"""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
RECORDS_A_PARTITION: Final = 300_000
"""Records in one shuffle partition. This many take about 80 MB in an audit."""
WHAT_JOBS_REST_ON: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}
"""Settings of every session.
mapKeyDedupPolicy: if several headers have the same name, the last one applies.
hugeMethodLimit: the driver gets TWO_COMPILERS, but executors do not. Without these options Java
compiles no method of more than 8,000 bytes, so Spark must not generate such methods.
icu: this library takes seconds to start. The jobs do not need it, because they change the case of
hexadecimal digits only.
objectHashAggregate: figures by minute have many small groups. Up to this number, Spark does not
sort them.
dynamicPartitionPruning: it took minutes. It helps only if tables are partitioned by join keys, and
no table is.
"""
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for a few thousand records, where compiling and replanning cost more than they save."""
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings from Delta Lake's instructions. A session must be created with them."""
KEEPS_NO_RECORDS: Final = {
    f"spark.kafka.consumer.{cache}.{time}": "1s"
    for cache in ("cache", "fetchedData.cache")
    for time in ("timeout", "evictorThreadRunInterval")
}
"""By default, Spark's Kafka reader keeps records for five minutes. They may fill the memory."""
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def spark_session(
    app: str,
    master: str = "local[*]",
    driver_memory: str = "4g",
    more: Mapping[str, str] | None = None,
    *,
    is_short: bool = False,
) -> SparkSession:
    """Return a session for the jobs: UTC, with the connector to Kafka. Raises `SparkUnusable`.
    An existing session, or the session of `spark-submit`, keeps its master, memory and jars.
    The Spark settings in `more` win over all others. Set `is_short` if the job ends before Java's
    second compiler is worth its time.
    """
    if SparkSession.getActiveSession() is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _refuse_nameless_user()
        java = java_options(os.environ, is_short=is_short)
        scratch = _scratch_folder(cache_folder())
        java.append(f'"-Djava.io.tmpdir={scratch}"')
        driver = _of_this_process(master, driver_memory, java)
        own = {**driver, **QUIET, **DELTA, **KEEPS_NO_RECORDS, **(more or {})}
        if master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = HERE
        os.environ["JAVA_HOME"] = str(java_home())
        with chdir(scratch):
            session = _started(SparkSession.builder.appName(app).master(master), own)
    else:
        session = _started(SparkSession.builder.appName(app), {**DELTA, **(more or {})})
    if not session.version.startswith(SPARK):
        raise SparkUnusable(
            f"This is Spark {session.version}; the jobs were tested with {SPARK}x.",
            "Install the extra `spark` of kafka-delay-proxy, and remove SPARK_HOME from the "
            "environment if it names another Spark.",
        )
    if any(wanted not in (session.conf.get(name, None) or "") for name, wanted in DELTA.items()):
        wanted = " and ".join(f"{name}={value}" for name, value in DELTA.items())
        raise SparkUnusable(
            "This Spark session was made without Delta Lake.", f"Make it with {wanted}."
        )
    for name, value in WHAT_JOBS_REST_ON.items():
        session.conf.set(name, (more or {}).get(name, value))
    return session


@contextmanager
def job_session(
    app: str,
    master: str = "local[*]",
    driver_memory: str = "4g",
    more: Mapping[str, str] | None = None,
    *,
    is_short: bool = False,
) -> Iterator[SparkSession]:
    """Yield a session, and stop it at the end unless it existed before.
    Spark's JVM may be gone by then, because Ctrl-C ends the whole process group.
    """
    was_there = SparkSession.getActiveSession() is not None
    own = None if was_there else more
    session = spark_session(app, master, driver_memory, own, is_short=is_short)
    try:
        yield session
    finally:
        if not was_there:
            with suppress(Py4JError, OSError):
                session.stop()


def size_shuffles(session: SparkSession, records: int) -> None:
    """Set the number of shuffle partitions for these records, unless the user has set it."""
    asked = session.sparkContext.getConf().get(SHUFFLE_PARTITIONS, LOCAL_PARTITIONS)
    if asked != LOCAL_PARTITIONS:
        return
    parts = max(session.sparkContext.defaultParallelism, -(-records // RECORDS_A_PARTITION))
    session.conf.set(SHUFFLE_PARTITIONS, str(parts))


def java_options(environment: Mapping[str, str], *, is_short: bool) -> list[str]:
    """Return Java's options. If the environment names a collector, COLLECTOR is left out."""
    given = " ".join(environment.get(name, "") for name in _JAVA_SETTINGS)
    collector = [] if _OTHER_COLLECTOR.search(given) else [COLLECTOR]
    return [*collector, *(ONE_COMPILER if is_short else TWO_COMPILERS)]


def _refuse_nameless_user() -> None:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise SparkUnusable(
            f"The user id {os.getuid()} has no name on this machine, and Spark asks for one.",
            "Run the audit as a user that /etc/passwd names, or add this one to it.",
        ) from None


def _scratch_folder(cache: Path) -> Path:
    """Make a folder for the JVM's work and libraries, removed at exit.
    Spark 4.0.0 leaves a folder `artifacts` in it (SPARK-52396). Libraries cannot be loaded from a
    `noexec` mount. If the temporary folder is on one, the folder is made in `cache`, beside Java.
    """
    temporary = Path(tempfile.gettempdir())
    parent = next((one for one in (temporary, cache) if _loads_libraries(one)), None)
    if parent is None:
        raise SparkUnusable(
            f"Spark cannot load its libraries from {temporary}: the mount forbids it (noexec).",
            "Set the environment variable TMPDIR to a folder on another mount.",
        )
    folder = Path(tempfile.mkdtemp(prefix="kafka-delay-proxy-spark-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _loads_libraries(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC


def _of_this_process(
    master: str, driver_memory: str, java_options: Sequence[str]
) -> dict[str, str]:
    with resources.as_file(resources.files("spark_jobs.runtime") / "log4j2.properties") as logging:
        quiet_logs = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    local = {
        "spark.driver.host": HERE,
        "spark.driver.bindAddress": HERE,
        SHUFFLE_PARTITIONS: LOCAL_PARTITIONS,
        "spark.executor.killOnFatalError.depth": "0",  # else a lack of memory ends the JVM
    }
    return {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": " ".join([quiet_logs, *java_options]),
        **(local if master.startswith("local") else {}),
    }


def _started(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnusable(
            f"Spark does not start: {error}.",
            "Its own messages are above. --driver-memory may be more than this machine has.",
        ) from error
