"""Program of a pod that tests which addresses the pod reaches, one after the other.

Arguments: the expected result (`open` or `closed`), then `host:port`. A new pod's rules may take a
moment, so each address has some time to become as expected."""

import socket
import sys
import time

WITHIN_S = 60
CONNECT_WITHIN_S = 2
ASK_AGAIN_S = 0.5


def reaches(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_WITHIN_S).close()
    except OSError:
        return False
    return True


def state(expected: str, address: str) -> str:
    deadline = time.monotonic() + WITHIN_S
    while reaches(address) != (expected == "open") and time.monotonic() < deadline:
        time.sleep(ASK_AGAIN_S)
    return "open" if reaches(address) else "closed"


if __name__ == "__main__":
    pairs = zip(sys.argv[1::2], sys.argv[2::2], strict=True)
    print(*(state(expected, address) for expected, address in pairs))
