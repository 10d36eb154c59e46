"""Program of `helm test`: it asks each address for /readyz and /metrics."""

import http.client
import os
import ssl
import sys
import time

READY_WITHIN_S = 120.0
ASK_AGAIN_S = 1.0
ANSWER_WITHIN_S = 5.0
METRIC = "delay_proxy_build_info"


def connection_to(address: str) -> http.client.HTTPConnection:
    """Return a connection. With TLS it trusts exactly ADMIN_CERTIFICATE, if that is set."""
    scheme, _, host = address.rpartition("://")
    if scheme != "https":
        return http.client.HTTPConnection(host, timeout=ANSWER_WITHIN_S)
    end = "-----END CERTIFICATE-----"
    first, found, _ = os.environ.get("ADMIN_CERTIFICATE", "").partition(end)
    context = ssl.create_default_context(cadata=first + found or None)
    if found:
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(host, timeout=ANSWER_WITHIN_S, context=context)


def answer(address: str, path: str, token: str = "") -> tuple[int, str]:
    """Return status and text, or 0 and the error."""
    connection = connection_to(address)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers=headers)
        got = connection.getresponse()
        return got.status, got.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


def fault(address: str, token: str, deadline_s: float) -> str:
    """Return what is wrong at the address, or nothing. Without a token metrics may be closed."""
    status, text = answer(address, "/readyz")
    while status != http.client.OK and time.monotonic() < deadline_s:
        time.sleep(ASK_AGAIN_S)
        status, text = answer(address, "/readyz")
    if status != http.client.OK:
        return f"/readyz: {status} {text}"
    status, text = answer(address, "/metrics", token)
    if status == http.client.UNAUTHORIZED and not token:
        return ""
    if status != http.client.OK or METRIC not in text:
        return f"/metrics: {status} {text[:500]}"
    if token and answer(address, "/metrics")[0] != http.client.UNAUTHORIZED:
        return "/metrics is open without the token"
    return ""


def main(addresses: list[str]) -> int:
    token = os.environ.get("TOKEN", "")
    deadline_s = time.monotonic() + READY_WITHIN_S
    faults = {address: fault(address, token, deadline_s) for address in addresses}
    for address, said in faults.items():
        print(f"{address} {said or 'is ready, and shows its metrics'}")
    return int(any(faults.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
