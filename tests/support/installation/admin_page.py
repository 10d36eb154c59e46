"""A page of a proxy's admin port on this machine, as a probe asks for it."""

import http.client

ANSWER_WITHIN_S = 60


def admin_page(port: int, path: str) -> tuple[int, str]:
    """Status and body; status 0 when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
