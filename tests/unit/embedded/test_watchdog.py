"""The watchdog process ends like its child."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from proxy.embedded import watchdog
from proxy.embedded.server import GuardedProcess, is_free

LOOKS_ALL_THE_TIME = """
import os, signal
from proxy.embedded import watchdog
watchdog.LOOK_EVERY_S = 0.0001
code = watchdog.Watchdog(os.getppid(), ["{python}", "-c", "raise SystemExit(3)"]).run()
timer = signal.getitimer(signal.ITIMER_REAL)
print(code, timer, signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM))
"""

LARGE_SERVER = """
import socket, sys
memory = bytearray(b"x") * (300 << 20)
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
with socket.create_server(("127.0.0.1", 0)) as server:
    connection.sendall(b"%d" % server.getsockname()[1])
    server.accept()
"""
"""The system frees the memory first, and then the port."""


def test_watchdog_ends_with_its_childs_exit_code_and_no_alarm_left_to_end_it_otherwise() -> None:
    program = LOOKS_ALL_THE_TIME.format(python=sys.executable)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["3", "(0.0,", "0.0)", "1", "1"], done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(("child", "code"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_childs_end_becomes_an_exit_code_as_a_shell_gives_it(child: str, code: int) -> None:
    command = [sys.executable, watchdog.__file__, str(os.getpid()), "/bin/sh", "-c", child]
    assert subprocess.run(command, check=False).returncode == code


@pytest.mark.parametrize("is_frozen", [False, True])
def test_killed_process_has_left_its_port_when_kill_returns(*, is_frozen: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reached:
        told = str(reached.getsockname()[1])
        process = GuardedProcess([sys.executable, "-c", LARGE_SERVER, told])
        connection = reached.accept()[0]
    with connection:
        port = int(connection.recv(5))
        if is_frozen:
            process.signal(signal.SIGSTOP)
        process.kill()
        assert is_free("127.0.0.1", port)
