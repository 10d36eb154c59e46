"""Checks of Dockerfile, .dockerignore and the image files by reading."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from proxy.config.sources import load_settings
from proxy.telemetry.status import Status
from tests.support.distributions import REPOSITORY
from tests.support.simulation.admin_api import MadeUpApi
from tools.image.context import sent
from tools.image.dockerfile import Stage, needed, stages

USER = "65532:65532"
CONFIG = "/etc/kafka-delay-proxy/proxy.yaml"
IMAGES = ("proxy", "audit")
PINNED = re.compile(r"python:3\.\d+\.\d+-slim-[a-z]+")
HEALTHY = REPOSITORY / "image" / "healthy.py"


@pytest.fixture(scope="module")
def dockerfile() -> dict[str, Stage]:
    return stages((REPOSITORY / "Dockerfile").read_text("utf-8"))


@pytest.fixture(scope="module")
def context() -> set[Path]:
    return set(sent(REPOSITORY))


def _sources(dockerfile: dict[str, Stage]) -> list[Path]:
    copies = [copy for stage in dockerfile.values() for copy in stage.all("COPY")]
    return [Path(path) for copy in copies if not copy.flags for path in copy.values()[:-1]]


def test_linter_of_dockerfiles_finds_nothing() -> None:
    program = shutil.which("hadolint") or shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint has no package for this machine")
    linted = subprocess.run(
        [program, str(REPOSITORY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout) == (0, "")


def test_every_stage_stands_on_a_pinned_slim_python_or_another_stage(
    dockerfile: dict[str, Stage],
) -> None:
    images = {stage.base for stage in dockerfile.values()} - set(dockerfile)
    assert len(images) == 1
    assert PINNED.fullmatch(images.pop())


def test_version_that_dependabot_raises_is_the_base(dockerfile: dict[str, Stage]) -> None:
    text = (REPOSITORY / ".github" / "base" / "Dockerfile").read_text("utf-8")
    (image,) = re.findall(r"^FROM (\S+)$", text, re.MULTILINE)
    assert image in {stage.base for stage in dockerfile.values()}


def test_proxy_is_the_image_that_is_built_when_none_is_named(dockerfile: dict[str, Stage]) -> None:
    assert list(dockerfile)[-1] == "proxy"


@pytest.mark.parametrize("image", IMAGES)
def test_images_run_as_a_numeric_user_without_rights(
    dockerfile: dict[str, Stage], image: str
) -> None:
    stage = dockerfile[image]
    assert [step.text for step in dockerfile[stage.base].all("USER")] == [USER]
    assert stage.all("USER") + stage.all("RUN") == []


@pytest.mark.parametrize("image", IMAGES)
def test_images_begin_with_the_command(dockerfile: dict[str, Stage], image: str) -> None:
    (entry,) = dockerfile[dockerfile[image].base].all("ENTRYPOINT")
    assert entry.values() == ["kafka-delay-proxy"]


def test_proxy_image_runs_with_the_settings_of_the_chart_path(
    dockerfile: dict[str, Stage],
) -> None:
    (command,) = dockerfile["proxy"].all("CMD")
    assert command.values() == ["run", "--config", CONFIG]
    assert CONFIG in [step.values()[-1] for step in dockerfile["proxy"].all("COPY")]


def test_proxy_image_has_nothing_of_the_audit_and_the_audit_nothing_of_the_proxy(
    dockerfile: dict[str, Stage],
) -> None:
    for image in IMAGES:
        built = {stage.name: stage for stage in needed(image, dockerfile)}
        locks = {path.name for path in _sources(built) if path.suffix == ".lock"}
        assert locks == {"requirements-build.lock", f"requirements-{image}.lock"}


def test_nothing_is_installed_that_is_not_locked_by_hash(dockerfile: dict[str, Stage]) -> None:
    scripts = [run.text for stage in dockerfile.values() for run in stage.all("RUN")]
    installs = [one for text in scripts for one in text.split("&&") if "bin/pip" in one]
    locked = ("--require-hashes", "--no-index", "--no-build-isolation --wheel-dir /build/wheels .")
    assert len(installs) == 6
    assert not [one for one in installs if not any(word in one for word in locked)]
    assert not [text for text in scripts if re.search(r"\b(apt|apt-get|curl|wget|git)\b", text)]


def test_all_that_is_copied_is_sent_to_the_engine_and_no_more(
    dockerfile: dict[str, Stage], context: set[Path]
) -> None:
    sources = set(_sources(dockerfile))
    missing = [one for one in sources if not any(path.is_relative_to(one) for path in context)]
    assert missing == []
    used = {path for path in context if any(path.is_relative_to(one) for one in sources)}
    assert {str(path) for path in context - used} <= {"requirements.lock"}


def test_what_the_wheel_is_made_of_is_sent_whole(context: set[Path]) -> None:
    tracked = [
        *(REPOSITORY / "proxy").rglob("*.py"),
        REPOSITORY / "spark_jobs/results/report.html.j2",
    ]
    assert {path.relative_to(REPOSITORY) for path in tracked} - context == set()
    assert not [path for path in context if "__pycache__" in path.parts]


def test_settings_in_the_image_are_accepted_and_say_where_data_and_probes_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("DELAY_PROXY_")]:
        monkeypatch.delenv(name)
    settings = load_settings(REPOSITORY / "image" / "proxy.yaml")
    assert settings.data_dir == Path("/data")
    assert (settings.admin.host, settings.admin.port) == ("0.0.0.0", 9464)  # noqa: S104


def test_health_check_of_the_image_is_a_program_it_carries(dockerfile: dict[str, Stage]) -> None:
    (check,) = dockerfile["proxy"].all("HEALTHCHECK")
    copies = [step.values() for step in dockerfile["proxy"].all("COPY")]
    assert ["image/healthy.py", "/opt/healthy.py"] in copies
    assert check.text.endswith('["python", "-I", "/opt/healthy.py"]')


def _healthy(port: int, *arguments: str) -> int:
    environment = {"DELAY_PROXY_ADMIN__PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    asked = [sys.executable, "-I", str(HEALTHY), *arguments]
    return subprocess.run(asked, env=environment, check=False).returncode


def test_health_check_tells_a_proxy_that_turns_from_one_that_is_ready() -> None:
    turns_unready = Status(heartbeat_monotonic=time.monotonic(), assigned=False)
    site = MadeUpApi(AdminSettings(port=0)).site
    site.read_statuses = lambda: [turns_unready]
    server = AdminServer(site)
    try:
        turning = _healthy(server.port), _healthy(server.port, "/readyz")
    finally:
        server.close()
    assert turning == (0, 1)
    assert _healthy(server.port) == 1
