"""A missing extra gives a sentence with the installation command."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from proxy import errors
from proxy.cli.app import main
from proxy.config.settings import Settings
from proxy.embedded import EmbeddedBroker
from proxy.embedded import jars as jar_cache
from proxy.errors import MODULES, ExtraMissing, require
from proxy.worker.run import run
from spark_jobs.runtime import session as java_home
from spark_jobs.runtime.errors import SparkUnusable

Call = Callable[..., tuple[int, str]]


def _fail(_broker: EmbeddedBroker, port: int) -> None:
    raise AssertionError(f"a broker was started on {port} all the same")


@pytest.fixture(autouse=True)
def _nothing_extra_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extra = {name for names in MODULES.values() for name in names}

    def find(name: str) -> ModuleSpec | None:
        return None if name in extra else find_spec(name)

    monkeypatch.setattr(errors, "find_spec", find)
    monkeypatch.setattr(EmbeddedBroker, "_start_on", _fail)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def call_with(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out + err

    return call_with


@pytest.mark.parametrize("command", ["broker", "dev"])
def test_commands_that_start_a_broker_say_which_extra_they_need(call: Call, command: str) -> None:
    code, said = call(command)
    assert code == 1
    assert "Error: The embedded broker needs the extra `embedded`" in said
    assert "pip install 'kafka-delay-proxy[embedded]'" in said
    assert "defect" not in said


def test_audit_without_spark_says_which_extra_it_needs(call: Call) -> None:
    code, said = call("audit")
    assert code == 1
    assert "Error: The audit needs the extra `spark`" in said
    assert "pip install 'kafka-delay-proxy[spark]'" in said


def test_rocksdb_that_is_not_installed_stops_the_proxy_before_it_asks_the_broker() -> None:
    settings = Settings(store="rocksdb")
    with pytest.raises(ExtraMissing, match=r"store: rocksdb` needs .*kafka-delay-proxy\[rocksdb\]"):
        run(settings)


@pytest.mark.parametrize(
    ("asked", "extra"),
    [
        ("store: rocksdb\n", "rocksdb"),
        ("tracing: {enabled: true}\n", "otel"),
        ("kafka: {sasl.mechanism: AWS_MSK_IAM}\n", "msk"),
    ],
)
def test_check_finds_what_is_asked_for_and_not_installed(
    call: Call, tmp_path: Path, asked: str, extra: str
) -> None:
    (tmp_path / "proxy.yaml").write_text(asked)
    code, said = call("check", "--offline", "--config", "proxy.yaml", "--json")
    assert code == 1
    assert f"kafka-delay-proxy[{extra}]" in said


def test_tracing_that_is_not_installed_stops_the_proxy_before_it_asks_the_broker() -> None:
    settings = Settings.model_validate({"tracing": {"enabled": True}})
    with pytest.raises(ExtraMissing, match=r"tracing.enabled` needs .*kafka-delay-proxy\[otel\]"):
        run(settings)


def test_verifying_a_rocksdb_folder_says_what_it_takes(call: Call, tmp_path: Path) -> None:
    (tmp_path / "data" / "timer.ingress-0@abc" / "rocksdb").mkdir(parents=True)
    code, said = call("store", "verify", "--data-dir", str(tmp_path / "data"))
    assert code == 1
    assert "kafka-delay-proxy[rocksdb]" in said


def test_other_stores_need_nothing_extra(call: Call) -> None:
    assert call("check", "--offline")[0] == 0


def test_java_that_is_not_installed_is_missed_by_the_audit_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SparkUnusable, match="extra `embedded`"):
        java_home.java_home({})


def test_jars_cannot_be_fetched_without_the_extra() -> None:
    with pytest.raises(ExtraMissing, match="Fetching Kafka"):
        jar_cache.ensure_jars()


def test_broker_as_an_object_is_refused_before_it_touches_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ExtraMissing):
        EmbeddedBroker(tmp_path / "broker").start()
    assert not (tmp_path / "broker").exists()


def test_what_is_installed_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _name: object())
    require("spark", "The audit")
