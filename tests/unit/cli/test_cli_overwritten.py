"""Another distribution has overwritten our package `proxy`, as proxy.py does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
RUN = "import sys; sys.argv = ['kafka-delay-proxy', 'run']; import kafka_delay_proxy as k; k.main()"


def _run(packages: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", RUN],
        env={**os.environ, "PYTHONPATH": str(packages)},
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
    )


def _installed(packages: Path, distribution: str) -> None:
    (packages / "kafka_delay_proxy.py").write_bytes(
        (REPOSITORY / "kafka_delay_proxy.py").read_bytes()
    )
    (packages / "proxy").mkdir()
    (packages / "proxy" / "__init__.py").touch()
    (packages / "proxy" / "__main__.py").write_text("entry_point = None\n")
    about = packages / f"{distribution.replace('-', '_')}-2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.0\n")
    (about / "RECORD").write_text("proxy/__init__.py,,\nproxy/__main__.py,,\n")


def test_run_says_which_one_and_where_to_install_the_service(tmp_path: Path) -> None:
    _installed(tmp_path, "proxy.py")
    ended = _run(tmp_path)
    assert ended.returncode == 1
    assert "The package proxy was overwritten by proxy.py" in ended.stderr
    assert "uv tool install kafka-delay-proxy" in ended.stderr


def test_another_failure_to_import_is_shown_as_it_is(tmp_path: Path) -> None:
    _installed(tmp_path, "kafka-delay-proxy")
    assert "cannot import name 'main' from 'proxy.__main__'" in _run(tmp_path).stderr
