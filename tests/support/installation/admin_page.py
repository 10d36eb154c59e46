"""Pages of a proxy's admin port on this machine."""

import http.client

ANSWER_WITHIN_S = 60


def admin_page(port: int, path: str) -> tuple[int, str]:
    """Return status and body. Status 0 means no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
