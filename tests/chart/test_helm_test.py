"""The pod of `helm test` asks each pod, and fails if one is not as it must be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings, AdminTls
from proxy.telemetry.status import Status
from tests.support.chart.chart_sets import EVERYTHING
from tests.support.chart.rendering import NAME, NAMESPACE, Document, rendered
from tests.support.installation.certificates import Authority
from tests.support.simulation.admin_api import MadeUpApi

pytestmark = pytest.mark.usefixtures("helm")

TOKEN = "a token of this length"
WITHIN_S = 60


def container() -> Document:
    found: Document = rendered(EVERYTHING).one("Pod", f"{NAME}-test")["spec"]["containers"][0]
    return found


@contextmanager
def admin_port(token: str | None) -> Iterator[str]:
    """Run the real admin port of a proxy that is ready. Yield its address."""
    made = MadeUpApi(AdminSettings(port=0, token=token), registry=registry())
    made.site.read_statuses = lambda: [Status(heartbeat_monotonic=time.monotonic(), assigned=True)]
    with closing(AdminServer(made.site)) as running:
        yield f"127.0.0.1:{running.port}"


def registry() -> CollectorRegistry:
    from proxy.telemetry.metrics import Metrics

    return Metrics().registry


def run(addresses: list[str], token: str | None, **more: str) -> subprocess.CompletedProcess[str]:
    _, *options = container()["command"]
    variables = {"TOKEN": token} if token else {}
    program = container()["args"][0].replace("READY_WITHIN_S = 120.0", "READY_WITHIN_S = 0.0")
    return subprocess.run(
        [sys.executable, *options, program, *addresses],
        env={**os.environ, **variables, **more},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def test_the_pod_asks_every_pod_by_a_name_that_the_proxy_answers_to() -> None:
    names = [f"https://{NAME}-{number}.{NAME}-pods.{NAMESPACE}.svc:9464" for number in range(3)]
    assert container()["args"][1:] == names
    about = rendered(EVERYTHING).one("Pod", f"{NAME}-test")["metadata"]["annotations"]
    assert about["helm.sh/hook"] == "test"


@pytest.mark.parametrize("token", [TOKEN, None])
def test_it_holds_if_all_are_ready_and_show_their_metrics(token: str | None) -> None:
    with admin_port(token) as one, admin_port(token) as other:
        ended = run([one, other], token)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(ended.stdout.splitlines()) == 2


def test_it_holds_if_metrics_are_closed_to_it() -> None:
    with admin_port(TOKEN) as one:
        assert run([one], None).returncode == 0


@pytest.mark.parametrize(("real", "sent"), [(TOKEN, "another token of length"), (None, TOKEN)])
def test_it_fails_at_a_wrong_token_and_at_metrics_that_are_open(
    real: str | None, sent: str
) -> None:
    with admin_port(real) as one:
        ended = run([one], sent)
    assert ended.returncode == 1
    assert "/metrics" in ended.stdout


def test_it_fails_if_one_pod_does_not_answer() -> None:
    with admin_port(TOKEN) as one:
        ended = run([one, "127.0.0.1:1"], TOKEN)
    assert ended.returncode == 1
    assert "127.0.0.1:1 /readyz: 0" in ended.stdout


def test_over_tls_exactly_the_certificate_of_the_secret_is_trusted(tmp_path: Path) -> None:
    own, other = (Authority().issue(name, ["pod"]) for name in ("own", "other"))
    own.write(tmp_path)
    files = {"certificate": tmp_path / "certificate.pem", "key": tmp_path / "key.pem"}
    made = MadeUpApi(AdminSettings(port=0, tls=AdminTls(**files)), registry=registry())
    made.site.read_statuses = lambda: [Status(heartbeat_monotonic=time.monotonic(), assigned=True)]
    with closing(AdminServer(made.site)) as running:
        address = f"https://127.0.0.1:{running.port}"
        for identity, code in ((own, 0), (other, 1)):
            said = run([address], None, ADMIN_CERTIFICATE=identity.certificate)
            assert said.returncode == code, said.stdout
    named = {one["name"]: one.get("valueFrom") for one in container()["env"]}
    secret = {"name": "admin-tls", "key": "tls.crt"}
    assert named["ADMIN_CERTIFICATE"] == {"secretKeyRef": secret}
