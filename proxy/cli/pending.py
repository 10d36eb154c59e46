"""`pending`: what waits, by target from the running proxy, and by due time from the local store."""

import urllib.error
import urllib.request
from collections import Counter
from typing import Annotated

import typer
from prometheus_client.parser import text_string_to_metric_families

from proxy.cli.options import AsJson, Config, settings_for
from proxy.cli.output import say, say_json, say_table
from proxy.errors import ProxyError
from proxy.settings import AdminSettings

ANSWER_LIMIT_S = 5.0
FAMILY = "delay_proxy_pending_records"


class ProxyUnreachable(ProxyError):
    """The admin port of the proxy does not answer."""


def pending(
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of the proxy's admin server.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Ask the running proxy how many records wait, by target."""
    settings = settings_for(config)
    address = admin or f"{_reachable(settings.admin)}:{settings.admin.port}"
    by_target = read_pending(fetch_metrics(address, settings.admin.token))
    total = sum(by_target.values())
    if as_json:
        say_json({"pending": total, "by_target": by_target})
        return
    if by_target:
        rows = [(target, f"{count:,}") for target, count in by_target.items()]
        say_table(["target", "records waiting"], rows)
    say(f"{total:,} records wait.")


def fetch_metrics(address: str, token: str | None) -> str:
    """The text of /metrics. Raises ProxyUnreachable."""
    request = urllib.request.Request(f"http://{address}/metrics")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise ProxyUnreachable(
            f"The proxy at {address} answered {error.code} {error.reason}.",
            "Set `admin: token` to the proxy's own." if error.code == 401 else "",
        ) from None
    except (OSError, ValueError) as error:
        raise ProxyUnreachable(
            f"No proxy answers at http://{address}: {getattr(error, 'reason', error)}.",
            "Start it, or name its admin server with --admin host:port.",
        ) from None


def read_pending(metrics_text: str) -> dict[str, int]:
    """Records waiting by target, the most first, over all workers."""
    counts: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics_text):
        if family.name == FAMILY:
            for sample in family.samples:
                counts[sample.labels["target"]] += int(sample.value)
    return dict(counts.most_common())


def _reachable(admin: AdminSettings) -> str:
    return "127.0.0.1" if admin.host in {"0.0.0.0", "::"} else admin.host  # noqa: S104
