"""Trial of a release, step by step. Each step fails with a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.chart.chart_files import CHART
from tests.support.chart.chart_sets import EVERYTHING, TOPICS_BY_THE_HOOK
from tests.support.chart.rendering import NAME, NAMESPACE, rendered
from tests.support.waiting import wait_for
from tools.install.api import Api, Document
from tools.install.controllers import Controllers
from tools.install.helm import Helm, HelmRefused
from tools.install.objects import differences, released, said

HOOKS: Final = "helm.sh/hook"
SET: Final = ("StatefulSet", NAME)
FIXED: Final = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")
LATER: Final = "9.9.9"
GONE_WITHIN_S: Final = 30
FIRST: Final[dict[str, Any]] = TOPICS_BY_THE_HOOK
CHANGED: Final[dict[str, Any]] = {
    **FIRST,
    "replicas": 3,
    "config": {**FIRST["config"], "release": {"max_per_second": 500}},
}
LARGER: Final[dict[str, Any]] = {**FIRST, "persistence": {"size": "20Gi"}}


class Trial:
    """One release from install to uninstall, seen through the API server. Objects that were in the
    namespace before the install are ignored."""

    def __init__(
        self, api: Api, helm: Helm, controllers: Controllers, tell: Callable[[str], None]
    ) -> None:
        self._api, self._helm, self._controllers = api, helm, controllers
        self._tell = tell
        self._before = set(api.contents(NAMESPACE))
        self._first: dict[tuple[str, str], Document] = {}

    def run(self, folder: Path) -> None:
        self._install()
        self._upgrade(_of_later_version(folder / "later"))
        self._refuse_another_volume()
        self._roll_back()
        self._change_the_volume()
        self._uninstall()
        self._install_everything()

    def _install(self) -> None:
        self._helm.install(FIRST)
        count = self._agrees(FIRST)
        self._tell(f"install: {self._hook_ran(1)}; then {count} objects, as rendered")
        self._first = self._live()

    def _upgrade(self, later: Path) -> None:
        before = self._live()[SET]
        self._helm.upgrade(CHANGED, later)
        count = self._agrees(CHANGED, later)
        after = self._live()[SET]
        assert after["metadata"]["uid"] == before["metadata"]["uid"], "made anew"
        for field in FIXED:
            assert after["spec"][field] == before["spec"][field], f"{field} changed"
        assert _checksum(after) != _checksum(before), "the pods would not be restarted"
        self._tell(
            f"upgrade to 3 replicas, another setting and version {LATER} of the chart: "
            f"{self._hook_ran(2)}; then {count} objects, as rendered; the same StatefulSet with "
            "another checksum of the settings, and no change of a field that must not change"
        )

    def _refuse_another_volume(self) -> None:
        before = self._live()[SET]
        try:
            self._helm.upgrade(LARGER)
        except HelmRefused as refused:
            told = str(refused).partition("Forbidden: ")[2]
        else:
            raise AssertionError("volumes of another size were accepted")
        assert told.startswith("updates to statefulset spec"), f"refused otherwise: {told!r}"
        after = self._live()[SET]
        assert after["metadata"]["generation"] == before["metadata"]["generation"], "changed"
        self._tell(f"upgrade to volumes of 20Gi: refused ({told[:60]} ...); StatefulSet untouched")

    def _roll_back(self) -> None:
        self._helm.rollback(1)
        different = list(differences(said(self._first), said(self._live())))
        assert not different, f"not as at first: {different}"
        assert set(self._live()) == set(self._first), "other objects than at first"
        history = ", ".join(self._helm.history())
        self._tell(f"rollback to revision 1: all objects are as at first (revisions: {history})")

    def _change_the_volume(self) -> None:
        """Change the volume's size, as docs/operations/kubernetes.md says."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}"
        self._api.ask("DELETE", path, {"propagationPolicy": "Orphan"})
        wait_for(lambda: SET not in self._live(), GONE_WITHIN_S, "the StatefulSet to go")
        self._helm.upgrade(LARGER)
        self._agrees(LARGER)
        self._tell("StatefulSet deleted without its pods, then the same upgrade: accepted, 20Gi")

    def _uninstall(self) -> None:
        self._helm.uninstall()
        self._is_empty()
        self._tell("uninstall: nothing is left (claims were never made, because no pod was made)")

    def _install_everything(self) -> None:
        self._helm.install(EVERYTHING)
        count = self._agrees(EVERYTHING)
        kinds = sorted({kind for kind, _ in self._live()})
        self._helm.uninstall()
        self._is_empty()
        self._tell(
            f"install with everything on: {count} objects, as rendered ({', '.join(kinds)}); "
            "uninstall: nothing is left"
        )

    def _live(self) -> dict[tuple[str, str], Document]:
        found = released(self._api.contents(NAMESPACE))
        return {key: one for key, one in found.items() if key not in self._before}

    def _agrees(self, values: dict[str, Any], chart: Path = CHART) -> int:
        """Check that the cluster holds exactly the rendered objects. Return their number."""
        documents = rendered(values, chart).documents
        wanted = {
            (one["kind"], one["metadata"]["name"]): one
            for one in documents
            if HOOKS not in one["metadata"].get("annotations", {})
        }
        live = self._live()
        assert set(live) == set(wanted), f"{sorted(live)} instead of {sorted(wanted)}"
        different = list(differences(wanted, live))
        assert not different, f"not as rendered: {different}"
        return len(live)

    def _hook_ran(self, times: int) -> str:
        jobs = self._controllers.jobs
        assert len(jobs) == times, f"{len(jobs)} Jobs instead of {times}"
        spec = jobs[-1]["spec"]["template"]["spec"]
        return f"first the Job `{' '.join(spec['containers'][0]['args'][:2])}`, gone when done"

    def _is_empty(self) -> None:
        def is_empty() -> bool:
            return set(self._api.contents(NAMESPACE)) <= self._before

        wait_for(is_empty, GONE_WITHIN_S, "the release's objects to go")


def _checksum(stateful_set: Document) -> str:
    annotations = stateful_set["spec"]["template"]["metadata"].get("annotations", {})
    return str(annotations.get("checksum/config"))


def _of_later_version(folder: Path) -> Path:
    shutil.copytree(CHART, folder)
    file = folder / "Chart.yaml"
    about = yaml.safe_load(file.read_text("utf-8"))
    file.write_text(yaml.safe_dump({**about, "version": LATER, "appVersion": LATER}), "utf-8")
    return folder
