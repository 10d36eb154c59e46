"""The release check finds a wrong version, a changed byte and a broken workflow."""

import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support.chart.rendering import rendered
from tests.support.distributions import REPOSITORY
from tools.release import __main__ as release
from tools.release import artifacts, packages, versions, workflows
from tools.release.findings import Fault, NotHere

NAMING_FILES = (
    versions.SOURCE,
    versions.CLIENT,
    versions.CHART,
    versions.COMPOSE,
    versions.CHANGELOG,
)
RELEASED = "## [0.1.0] - 2026-11-22\n\n- New.\n"
CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"
SOUND = f"""name: one
on: push
permissions: {{}}
jobs:
  one:
    runs-on: ubuntu-24.04
    permissions: {{contents: read}}
    steps:
      - uses: {CHECKOUT}
        with: {{persist-credentials: false}}
      - run: echo "$GITHUB_SHA"
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in NAMING_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


def test_versions_of_this_repository_agree() -> None:
    assert versions.agreed(REPOSITORY)


@pytest.mark.parametrize("name", NAMING_FILES)
def test_another_version_in_one_file_is_found(copy: Path, name: str) -> None:
    version = versions.agreed(copy)
    text = (copy / name).read_text("utf-8")
    (copy / name).write_text(text.replace(version, "9.9.9"), "utf-8")
    with pytest.raises(Fault, match=name) as found:
        versions.agreed(copy)
    assert "9.9.9" in str(found.value)


def test_chart_and_its_app_have_one_version(copy: Path) -> None:
    chart = copy / versions.CHART
    chart.write_text(chart.read_text("utf-8").replace('appVersion: "', 'appVersion: "9'), "utf-8")
    with pytest.raises(Fault, match="appVersion"):
        versions.agreed(copy)


def test_tag_names_the_version_and_leaves_no_change_unreleased(copy: Path) -> None:
    version = versions.agreed(copy)
    changelog = copy / versions.CHANGELOG
    changelog.write_text(f"## [Unreleased]\n\n## [{version}] - 2026-11-22\n\n- New.\n", "utf-8")
    assert versions.agreed(copy, f"v{version}") == version
    assert versions.notes(copy, version) == "- New."
    with pytest.raises(Fault, match=r"the tag names 9\.9\.9"):
        versions.agreed(copy, "v9.9.9")
    changelog.write_text(f"## [Unreleased]\n\n- More.\n\n## [{version}] - 2026-11-22\n", "utf-8")
    with pytest.raises(Fault, match="unreleased changes"):
        versions.agreed(copy, f"v{version}")


def _wheel(folder: Path, content: bytes) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "one.whl", "w") as wheel:
        wheel.writestr(zipfile.ZipInfo("same.py"), b"1")
        wheel.writestr(zipfile.ZipInfo("other.py"), content)


def test_readme_of_a_package_links_to_the_files_of_its_version(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = copy / "README.md"
    page.write_text("[a](docs/guide.md#when) [b](#there) [c](https://c.example/)", "utf-8")
    packages.address_links(copy)
    assert "(docs/guide.md#when)" in page.read_text("utf-8")
    monkeypatch.setenv("SOURCE_URL", "https://forge.example/owner/repository")
    packages.address_links(copy)
    files = f"https://forge.example/owner/repository/blob/v{versions.agreed(copy)}"
    assert (
        page.read_text("utf-8")
        == f"[a]({files}/docs/guide.md#when) [b](#there) [c](https://c.example/)"
    )


def test_one_changed_byte_in_a_second_build_is_found_with_its_file(tmp_path: Path) -> None:
    for name, content in {"first": b"12", "same": b"12", "changed": b"13"}.items():
        _wheel(tmp_path / name, content)
    assert packages.differing(tmp_path / "first", tmp_path / "same") == []
    assert packages.differing(tmp_path / "first", tmp_path / "changed") == ["one.whl (other.py)"]


def test_file_of_one_build_only_is_found(tmp_path: Path) -> None:
    _wheel(tmp_path / "first", b"12")
    (tmp_path / "second").mkdir()
    assert packages.differing(tmp_path / "first", tmp_path / "second") == [
        "one.whl (built once only)"
    ]


def _repository_with(workflow: str, folder: Path) -> Path:
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "one.yaml").write_text(workflow, "utf-8")
    return folder


def _checked(root: Path) -> str:
    try:
        return workflows.checked(root)
    except NotHere as reason:
        pytest.skip(str(reason))


@pytest.mark.rest  # Go builds actionlint once, in half a minute
def test_sound_workflow_passes(tmp_path: Path) -> None:
    assert _checked(_repository_with(SOUND, tmp_path)) == "1 accepted"


@pytest.mark.rest
def test_workflows_of_this_repository_pass() -> None:
    assert _checked(REPOSITORY)


@pytest.mark.parametrize(
    ("sound", "broken", "named"),
    [
        ("permissions: {contents: read}", "permissions: write-all", "excessive-permissions"),
        (CHECKOUT, "actions/checkout@v7", "unpinned-uses"),
        ('"$GITHUB_SHA"', "${{ github.head_ref }}", "template-injection"),
        ("        with: {persist-credentials: false}\n", "", "artipacked"),
    ],
)
def test_unsafe_workflow_is_found(tmp_path: Path, sound: str, broken: str, named: str) -> None:
    assert sound in SOUND
    with pytest.raises(Fault, match=named):
        workflows.checked(_repository_with(SOUND.replace(sound, broken), tmp_path))


@pytest.mark.rest
@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        ("runs-on: ubuntu-24.04", "runs-on: ${{ matrix.os }}"),
        ("    steps:", "    needs: two\n    steps:"),
    ],
)
def test_workflow_that_cannot_run_is_found(tmp_path: Path, sound: str, broken: str) -> None:
    assert sound in SOUND
    with pytest.raises(Fault, match="actionlint"):
        _checked(_repository_with(SOUND.replace(sound, broken), tmp_path))


def test_chart_without_a_file_or_with_another_version_is_found(tmp_path: Path) -> None:
    version = versions.agreed(REPOSITORY)
    assert artifacts.packaged(REPOSITORY, tmp_path, version).startswith("kafka-delay-proxy-")
    with pytest.raises(Fault, match="has version"):
        artifacts.packaged(REPOSITORY, tmp_path, "9.9.9")


def test_published_chart_has_the_image_and_the_addresses_of_its_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHART_IMAGE", "registry.example/Owner/Repository")
    monkeypatch.setenv("CHART_HOME", "https://owner.example/site")
    monkeypatch.setenv("SOURCE_URL", "https://forge.example/owner/repository")
    artifacts.packaged(REPOSITORY, tmp_path, versions.agreed(REPOSITORY))
    (archive,) = tmp_path.glob("*.tgz")
    shutil.unpack_archive(archive, tmp_path)
    chart = tmp_path / "kafka-delay-proxy"
    about = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    assert about["home"] == "https://owner.example/site"
    assert about["sources"] == ["https://forge.example/owner/repository"]
    release = rendered({"prometheusRule": {"enabled": True}}, chart)
    assert release.container["image"].startswith("registry.example/owner/repository:")
    assert "runbook_url: https://owner.example/site/operations/runbook/#" in release.text


def test_table_has_a_line_for_each_step_and_a_fault_ends_the_check_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*results: Exception | str, options: tuple[str, ...] = ()) -> int:
        steps = {str(n): lambda one=one: _raised(one) for n, one in enumerate(results)}
        monkeypatch.setattr(release, "_steps", lambda _: steps)
        monkeypatch.setattr("sys.argv", ["release", *options])
        return release.main()

    assert ended("well") == 0
    assert ended("well", NotHere("no engine")) == 0
    assert ended("well", NotHere("no engine"), options=("--all",)) == 1
    assert ended("well", Fault("a byte\ndiffers")) == 1
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["0", "passed", "well"]
    assert second.split() == ["1", "FAILED", "a", "byte"]


def _raised(result: Exception | str) -> str:
    if isinstance(result, Exception):
        raise result
    return result
