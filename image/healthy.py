"""The image's health check: exit code 0 when the proxy in this container answers 200.

`healthy.py` asks /healthz (the loop turns), `healthy.py /readyz` whether all shards have caught up.
"""

import http.client
import os
import sys

TIMEOUT_S = 4.0


def status(path: str) -> int:
    """What the proxy answers; 0 where nobody does."""
    port = int(os.environ.get("DELAY_PROXY_ADMIN__PORT", "9464"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(status(sys.argv[1] if sys.argv[1:] else "/healthz") != http.client.OK)
