"""Trial of two replicas of the chart as local processes: `make two-pods`.

Helm renders the chart with two replicas for an embedded broker. The hook's command creates the
topics, because the pods may not create topics. Both pods start with their rendered settings, get
ready, answer the program of `helm test` and deliver records. One pod is killed, and the other pod
delivers the pending records of the killed pod. The killed pod starts again and serves its shards.
The exit code is 0 only if every step succeeded."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from proxy.embedded import EmbeddedBroker
from tests.support.chart.deliveries import PARTITIONS, RECORDS, Deliveries
from tests.support.chart.local_pods import HERE, LocalPod, Node
from tests.support.chart.rendering import NAME, Document, HelmMissing, Release, rendered
from tests.support.waiting import wait_for

REPOSITORY: Final = Path(__file__).parents[3]
READY_WITHIN_S: Final = 360
END_WITHIN_S: Final = 180
SESSION_MS: Final = 6_000
"""Session timeout. After this time the group drops a killed pod. The default is 10 s."""
LAST_LINES: Final = 20


class PodProcess:
    def __init__(self, pod: LocalPod) -> None:
        self.pod = pod
        self.log = pod.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.pod.command, cwd=REPOSITORY, env=self.pod.environment, stdout=log, stderr=log
            )

    def end(self, how: signal.Signals) -> int:
        """Send the signal and return the exit code. Kill the pod after a timeout."""
        assert self._process is not None, "never started"
        self._process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        assert self._process is not None, "never started"
        try:
            return self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"{self.pod.name} did not end in {END_WITHIN_S} s") from None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def serves(self, shards: int) -> bool:
        return self.pod.passes() and self.pod.shards() == shards


def values(bootstrap: str) -> dict[str, Any]:
    kafka = {"bootstrap.servers": bootstrap, "session.timeout.ms": SESSION_MS}
    topics = {"create": False, "partitions": PARTITIONS}
    return {"replicas": 2, "config": {"kafka": kafka, "topics": topics}}


class Trial:
    def __init__(self, bootstrap: str, pods: Sequence[PodProcess], test: Document) -> None:
        self._records = Deliveries(bootstrap)
        self._pods, self._test = pods, test

    def run(self) -> None:
        first, second = self._pods
        for pod in self._pods:
            pod.start()
        self._await("both pods ready, two shards each", lambda: self._serve(2, 2))
        self._ask_as_helm_test_does()
        self._send("1s")
        self._judge("delivered by both pods")
        self._send("3s")
        first.end(signal.SIGKILL)
        say(f"{first.pod.name} killed with records waiting")
        self._await(f"{second.pod.name} has taken over", lambda: second.serves(PARTITIONS))
        self._judge(f"delivered by {second.pod.name} alone")
        first.start()
        self._await(f"{first.pod.name}, started again, is back", lambda: self._serve(2, 2))
        self._send("1s")
        self._judge("delivered by both pods again")
        codes = [pod.end(signal.SIGTERM) for pod in self._pods]
        assert codes == [0, 0], f"the pods ended with {codes}"
        say("both ended by SIGTERM with exit code 0")

    def _ask_as_helm_test_does(self) -> None:
        """Run the program of the test's pod."""
        addresses = [f"{HERE}:{one.pod.admin_port}" for one in self._pods]
        program = [sys.executable, *self._test["command"][1:], self._test["args"][0], *addresses]
        ran = subprocess.run(
            program, capture_output=True, text=True, timeout=READY_WITHIN_S, check=False
        )
        assert ran.returncode == 0, f"helm test: {ran.stdout}{ran.stderr}"
        say(f"helm test: {', '.join(ran.stdout.splitlines())}")

    def _serve(self, *shards: int) -> bool:
        return all(pod.serves(count) for pod, count in zip(self._pods, shards, strict=True))

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        wait_for(condition, READY_WITHIN_S, what)
        say(f"{what} ({time.monotonic() - began:.1f} s)")

    def _send(self, delay: str) -> None:
        self._records.send(*[delay] * RECORDS)

    def _judge(self, what: str) -> None:
        late = self._records.judge()
        say(f"{len(late)} records {what}, each once, 0 to {max(late)} ms late")


def say(text: str) -> None:
    print(text, flush=True)


def _run_hook(node: Node, release: Release) -> None:
    for job in release.all("Job"):
        pod = PodProcess(node.pod(job["metadata"]["name"], job["spec"]["template"]["spec"]))
        pod.start()
        code = pod.wait()
        said = pod.log.read_text("utf-8", "replace").strip()
        assert code == 0, f"{pod.pod.name} ended with {code}: {said}"
        say(f"{pod.pod.name}: {', '.join(said.splitlines())}")


def _played(folder: Path) -> None:
    with ExitStack() as running:
        broker = running.enter_context(EmbeddedBroker(folder / "broker"))
        bootstrap = broker.bootstrap_servers
        release = rendered(values(bootstrap))
        node = Node(folder / "pods", release.documents, {})
        _run_hook(node, release)
        pods = [PodProcess(pod) for pod in node.pods(release.stateful_set)]
        for pod in pods:
            running.callback(pod.close)
            say(f"{pod.pod.name}: {' '.join(pod.pod.command[1:])}")
        try:
            test = release.one("Pod", f"{NAME}-test")["spec"]["containers"][0]
            Trial(bootstrap, pods, test).run()
        except AssertionError:
            for pod in pods:
                lines = pod.log.read_text("utf-8", "replace").splitlines()
                say("\n".join([f"--- {pod.pod.name}", *lines[-LAST_LINES:]]))
            raise


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="two-pods-") as folder:
        try:
            _played(Path(folder))
        except (AssertionError, HelmMissing) as failed:
            say(f"Not held: {failed}")
            return 1
    say("Held.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
