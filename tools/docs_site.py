"""Pages of the documentation site: `python -m tools.docs_site FOLDER` writes them to a new folder.

These are the pages in docs/, pages from elsewhere in the repository, and a reference made from the
code. Links in the repository are relative paths. On the site, a link to a page leads to that page.
A link to a file of settings leads to the reference made from this file. A link to any other file
becomes plain text, since the site does not have the file.
"""

import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import typer
import yaml
from prometheus_client import Metric

from proxy.cli.app import app
from proxy.config.sources import DEFAULT_FILE
from proxy.dead_letters.letter import REMEDIES
from proxy.protocol import headers
from proxy.protocol.outcomes import REASONS
from proxy.telemetry.metrics import Metrics
from spark_jobs.continuous_audit import Gauges, Totals
from spark_jobs.questions import questions
from spark_jobs.results import descriptions
from tests.support.chart.chart_comments import Value, documented
from tests.support.chart.chart_files import CHART
from tools.client_reference import client_names

ROOT: Final = Path(__file__).parents[1]
OUTSIDE: Final = {
    "README.md": "index.md",
    "ADOPTERS.md": "adopters.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "MAINTAINERS.md": "maintainers.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "other-languages.md",
    "helm/kafka-delay-proxy/README.md": "operations/helm.md",
    "storage/FORMAT.md": "understand/files-on-disk.md",
}
"""Pages outside docs/, and their places on the site."""
MADE_OF: Final = {
    "proxy/config/default.yaml": "reference/settings.md",
    "helm/kafka-delay-proxy/values.yaml": "reference/chart.md",
}
"""A file -> the reference that is made from it. Links to the file lead to this reference."""
PLACES: Final = OUTSIDE | MADE_OF
LINK: Final = re.compile(r"(?P<text>\[[^\]]*\])\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
CITED: Final = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")
"""The name of a page, as comments in the code cite it."""
QUOTE: Final = '"'
FENCE: Final = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
HEADER_ROW: Final = re.compile(r"^\| (`timer-[^|]*) \| ([^|]*)(?:\|.*)?$", re.MULTILINE)
HEADING: Final = re.compile(r"^#{2,3} (.*)$", re.MULTILINE)


def write_pages(folder: Path) -> None:
    """Write all pages, pictures and other files of the site."""
    shutil.copytree(ROOT / "docs", folder)
    for page in folder.rglob("*.md"):
        place = page.relative_to(folder).as_posix()
        _write(page, relinked(page.read_text("utf-8"), f"docs/{place}", place))
    for source, place in OUTSIDE.items():
        _write(folder / place, relinked((ROOT / source).read_text("utf-8"), source, place))
    for name, content in reference().items():
        _write(folder / "reference" / f"{name}.md", content)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")


def relinked(markdown: str, source: str, place: str) -> str:
    """Return a page whose links work on the site. `source` is the page's path in the repository,
    and `place` its path on the site."""
    parts = FENCE.split(markdown)
    parts[::2] = [
        LINK.sub(lambda found: _relinked(found, source, place), part) for part in parts[::2]
    ]
    return "".join(parts)


def _relinked(found: re.Match[str], source: str, place: str) -> str:
    to = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["path"]))
    if to in PLACES:
        to_place = PLACES[to]
    elif to.startswith("docs/") and (ROOT / to).is_file():
        to_place = to.removeprefix("docs/")
    elif (ROOT / to).exists():
        return found["text"][1:-1]
    else:
        return found[0]
    path = posixpath.relpath(to_place, posixpath.dirname(place) or ".")
    return f"{found['text']}({path}{found['anchor'] or ''})"


def reference() -> dict[str, str]:
    """Return the generated pages by name."""
    return {
        "headers": _page("All headers", _headers()),
        "codes": _page("Every code of a dead letter", _codes()),
        "settings": _page("Every setting", _settings()),
        "chart": _page("Every value of the chart", _chart_values()),
        "metrics": _page("Every metric", _metrics()),
        "cli": _page("Every command", _commands()),
        "api": _page("Every call of the admin API", _calls()),
        "audit": _page("Every result of the audit", _audit()),
        "client": _page("Every name of the Python client", client_names()),
    }


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join((f"# {title}", "", *lines, ""))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _headers() -> Iterator[str]:
    """Yield a table of the public headers, with the meanings that the guide gives them."""
    guide, meanings, section = (ROOT / "docs/guide.md").read_text("utf-8"), dict[str, str](), ""
    for line in guide.splitlines():
        if heading := HEADING.match(line):
            section = heading[1]
        if row := HEADER_ROW.match(line):
            for name in re.findall(r"`(timer-[a-z-]+)`", row[1]):
                link = f"[{section}](../guide.md#{_slug(section)})"
                meanings.setdefault(name, f"{row[2].strip()} ({link})")
    yield "| header | written by | meaning |\n|---|---|---|"
    for writer, names in (("producers", headers.REQUESTS), ("the proxy", headers.STAMPS)):
        yield from (f"| `{name}` | {writer} | {meanings[name]} |" for name in sorted(names))


def _codes() -> Iterator[str]:
    """Yield a table of the values of timer-error, with meanings and remedies."""
    yield "| code | meaning | remedy |\n|---|---|---|"
    yield from (f"| `{c}` | {_cell(REASONS[c])} | {_cell(REMEDIES[c])} |" for c in REASONS)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _settings() -> Iterator[str]:
    """Yield the keys of default.yaml with their comments."""
    head = DEFAULT_FILE.read_text("utf-8").partition("\n\n")[0]
    yield re.sub(r"^# ?", "", head, flags=re.MULTILINE) + "\n"
    yield "[Settings](../operations/settings.md) has logins, and the effect of a change.\n"
    for setting in documented(DEFAULT_FILE):
        yield from _key(setting, min(len(setting.path), 2))


def _chart_values() -> Iterator[str]:
    """Yield the values of the chart. Settings are left out if default.yaml has the same text."""
    yield "The [chart's page](../operations/helm.md) says which values to decide on first.\n"
    settings = {one.path: one for one in documented(DEFAULT_FILE)}
    for value in documented(CHART / "values.yaml"):
        usual = settings.get(value.path[1:]) if value.path[0] == "config" else None
        if usual is None or (usual.default, usual.said) != (value.default, value.said):
            yield from _key(value, min(len(value.path), 2))
        if value.path == ("config",):
            yield "Below are the settings with another default or meaning in a pod."
            yield "[Every setting](settings.md) has the others.\n"


def _key(key: Value, depth: int) -> Iterator[str]:
    yield f"{'#' * (depth + 1)} `{'.'.join(key.path)}`\n"
    for is_example, lines in groupby(key.said.splitlines(), lambda line: line.startswith("  ")):
        said = "\n".join(lines)
        yield f"```yaml\n{said}\n```\n" if is_example else CITED.sub(r"[\1](../\1\2)", said) + "\n"
    if key.default is not None:
        yield f"Default: `{key.default.strip(QUOTE) or QUOTE * 2}`\n"


def _metrics() -> Iterator[str]:
    yield from _metrics_of(Metrics().registry.collect())


def _metrics_of(families: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |\n|---|---|---|---|"
    for family in sorted(families, key=lambda family: family.name):
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = sorted({name for one in family.samples for name in one.labels} - {"le"})
        named = ", ".join(f"`{name}`" for name in labels)
        meaning = _cell(family.documentation)
        yield f"| `{family.name}{suffix}` | {family.type} | {named} | {meaning} |"


def _commands() -> Iterator[str]:
    root = typer.main.get_command(app)
    yield from _command("kafka-delay-proxy", root)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{command.help or ''}\n"
    options = [one for one in command.params if not getattr(one, "hidden", False)]
    if options:
        yield "| option | meaning | default |\n|---|---|---|"
        for one in options:
            is_argument = one.param_type_name == "argument"
            shown = one.name.upper() if is_argument else ", ".join(one.opts)
            is_shown = one.default not in {None, False} and not callable(one.default)
            default = f"`{one.default}`" if is_shown else ""
            yield f"| `{shown}` | {_cell(getattr(one, 'help', None) or '')} | {default} |"
        yield ""
    for child_name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _command(f"{name} {child_name}", child)


def _calls() -> Iterator[str]:
    document = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text("utf-8"))
    yield f"{document['info']['description']}\n"
    yield "[openapi.yaml](../openapi.yaml) is the same in the form that programs read.\n"
    for path, item in document["paths"].items():
        for method, call in item.items():
            if method in {"get", "post", "put", "patch", "delete"}:
                yield f"## {method.upper()} {path}\n"
                yield f"**{call['summary']}** {call.get('description', '')}\n"
                yield from _parameters(call.get("parameters", []))
                yield from _body(call, document["components"]["schemas"])
                yield from _answers(call)


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    named = [one for one in parameters if "name" in one]
    if named:
        yield "| parameter | in | meaning |\n|---|---|---|"
        for one in named:
            said = one.get("description") or one.get("schema", {}).get("description", "")
            yield f"| `{one['name']}` | {one['in']} | {_cell(said)} |"
        yield ""


def _body(call: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Yield a table of the fields of a call's body."""
    if "requestBody" not in call:
        return
    schema = call["requestBody"]["content"]["application/json"]["schema"]
    body = schemas[schema["$ref"].rpartition("/")[2]]
    yield "| field of the body | required | meaning |\n|---|---|---|"
    for name, field in body["properties"].items():
        shared = schemas.get(field.get("$ref", "").rpartition("/")[2], {})
        said = field.get("description") or shared.get("description") or field.get("type", "")
        yield f"| `{name}` | {'yes' if name in body.get('required', ()) else ''} | {_cell(said)} |"
    yield ""
    for example in body.get("examples", []):
        yield f"```json\n{json.dumps(example)}\n```\n"


def _answers(call: dict[str, Any]) -> Iterator[str]:
    yield "| answer | meaning |\n|---|---|"
    for status, answer in call["responses"].items():
        said = answer.get("description") or "a problem, as JSON"
        yield f"| {status} | {_cell(said)} |"
    yield ""


def _audit() -> Iterator[str]:
    for title, meanings, is_column in (
        ("`summary.json`", descriptions.SUMMARY, False),
        ("The table `audits`: a row for each audit", descriptions.AUDITS, True),
        ("The table `verdicts`: a row for each record", descriptions.VERDICTS, True),
    ):
        yield f"## {title}\n"
        yield f"| {'column' if is_column else 'key'} | meaning |\n|---|---|"
        yield from (f"| `{name}` | {_cell(text)} |" for name, text in meanings.items())
        yield ""
    yield "## Questions\n"
    for one in questions().values():
        yield f"### `{one.name}`\n"
        yield f"**{one.asks}** {one.notes}\n"
        for parameter, default, meaning in one.parameters:
            yield f"- `{parameter}`{f' (`{default}`)' if default else ''}: {meaning}"
        yield ""
    yield "## Metrics of the continuous audit\n"
    gauges = Gauges()
    gauges.totals = Totals()
    yield from _metrics_of(gauges.collect())


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
