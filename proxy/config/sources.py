"""Readers of the settings: a file (YAML), environment variables, and `--set` on the command line.

Variables override the file, and `--set` overrides both. `--set wheel.precision_ms=500` has the
whole key, with dots, and a value in YAML. `DELAY_PROXY_WHEEL__PRECISION_MS=500` is the same. Under
`kafka`, single underscores stand for dots. Variables have lists as JSON, with two exceptions:
delays have blanks between them, and patterns, aliases and kinds of requests may have commas.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as EnvironmentUnreadable

from proxy.config.settings import Settings
from proxy.errors import SettingsError

ENV_PREFIX = "DELAY_PROXY_"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
DEFAULT_FILE = Path(__file__).with_name("default.yaml")
FREE_SECTIONS = (
    ("kafka",),
    ("retry", "groups"),
    ("admission", "per_target"),
    ("admission", "bytes_per_target"),
    ("release", "per_target"),
    ("recovery", "accept_loss_below"),
    ("admin", "tokens"),
    ("admin", "users"),
)
_OF_KUBERNETES = re.compile(
    r"(.+_)?SERVICE_(HOST|PORT(_\w+)?)|(.+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
)

_CORE = "tag:yaml.org,2002:"
_NULL = _CORE + "null"
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_QUOTED = re.compile(r"""['"].*['"]""", re.DOTALL)

KeyPath = tuple[str, ...]


def load_settings(path: Path | None = None, asked: Iterable[str] = ()) -> Settings:
    """Load the file at `path`, or the defaults, with the environment and then `asked` on top.

    `asked` has a `key=value` for each `--set`. Raises SettingsError with one sentence for each
    problem.
    """
    document = _read_file(path) if path is not None else _Document({}, {}, "")
    choices = _Choices({}, {})
    for text in asked:
        choices.add(text)
    problems = [
        *_unknown_in_file(document),
        *_unknown_in_environment(os.environ),
        *_unknown_in_choices(choices),
    ]
    if problems:
        raise SettingsError("\n".join(problems))
    try:
        values = _merged(_merged(document.values, _Environment(_Variables)()), choices.values)
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(error, document, choices))) from None
    except EnvironmentUnreadable as error:
        raise SettingsError(f"An environment variable is not valid JSON: {error}.") from None
    except RecursionError:
        raise SettingsError("An environment variable has too many nested lists.") from None


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings as one. Sections are merged key by key. Other values of `high` win."""
    both = {**low, **high}
    for key in low.keys() & high.keys():
        if isinstance(low[key], Mapping) and isinstance(high[key], Mapping):
            both[key] = _merged(low[key], high[key])
    return both


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader for the scalars of YAML 1.2. PyYAML itself reads `0123`, `1:30` and `1_000` as
    numbers."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _form, _first in (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_CORE + "bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_CORE + "int", r"-?(0|[1-9][0-9]*)", "-0123456789"),
    (_CORE + "float", r"-?(0|[1-9][0-9]*)\.[0-9]+", "-0123456789"),
    (_CORE + "merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_form})$"), list(_first))


class _Environment(EnvSettingsSource):
    def __call__(self) -> dict[str, Any]:
        values = super().__call__()
        if isinstance(section := values.get("kafka"), Mapping):
            values["kafka"] = {name.replace("_", "."): text for name, text in section.items()}
        return values


class _Variables(Settings, BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_prefix_target="all",
        env_nested_delimiter="__",
        env_parse_none_str="null",
    )


@dataclass(frozen=True, slots=True)
class _Document:
    values: dict[str, Any]
    lines: dict[KeyPath, int]
    name: str

    def where(self, path: KeyPath) -> str:
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name} line {self.lines[path]}" if path else self.name or "The settings"


@dataclass(frozen=True, slots=True)
class _Choices:
    """The values of `--set`."""

    values: dict[str, Any]
    keys: dict[KeyPath, str]
    """Path -> the key as the user wrote it."""

    def add(self, text: str) -> None:
        """Add `key=value`. A later value replaces an earlier one. Raises SettingsError."""
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise SettingsError(
                f"`--set {text}` has no value.", "Write a key and a value: --set log.level=debug."
            )
        path = _key_path(key)
        self.keys[path] = key
        nested: Any = _value_of(path, value, f"`--set {key}`")
        for part in reversed(path):
            nested = {part: nested}
        self.values.update(_merged(self.values, nested))


def _key_path(key: str) -> KeyPath:
    """Return the path of a dotted key. In a section of FREE_SECTIONS, names keep their dots."""
    for free in FREE_SECTIONS:
        start = ".".join(free) + "."
        if key.startswith(start):
            return (*free, key.removeprefix(start))
    return tuple(key.split("."))


def _value_of(path: KeyPath, text: str, where: str) -> Any:
    """Parse a value of `--set`. A value under `kafka` is taken as text."""
    if path[0] == "kafka":
        return text
    try:
        node, value = _parsed(text)
        ambiguous = "\n".join(_leading_zeros(node, path, where))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SettingsError(f"The value of {where} is not YAML.", "Put it in quotes.") from None
    if ambiguous:
        raise SettingsError(ambiguous)
    return value


def variable_name(path: KeyPath) -> str:
    """Return the environment variable for the key at `path`."""
    return ENV_PREFIX + "__".join(path).replace(".", "_").upper()


def known_paths(model: type[BaseModel] = Settings) -> Iterator[KeyPath]:
    """Yield every key, sections included."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield (key,)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ((key, *rest) for rest in known_paths(field.annotation))


def _read_file(path: Path) -> _Document:
    try:
        text = path.read_text("utf-8")
        node, values = _parsed(text)
        ambiguous = "\n".join(_leading_zeros(node, (), str(path)))
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"The settings file {path} is not UTF-8 text.") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}{_said_of(error)}", "Correct the file there.") from None
    except (ValueError, RecursionError):
        raise SettingsError(
            f"The settings file {path} holds an impossible date, or too many nested lists.",
            "Write texts that look like dates in quotes.",
        ) from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise SettingsError(f"The settings file {path} must have keys and values.")
    if ambiguous:
        raise SettingsError(ambiguous)
    lines: dict[KeyPath, int] = {}
    for key_path, line in _lines(node, ()):
        if key_path in lines:
            raise SettingsError(
                f"{path} line {line}: `{'.'.join(key_path)}` is set twice, first on line "
                f"{lines[key_path]}.",
                "Remove one of them.",
            )
        lines[key_path] = line
    written = {str(key): value for key, value in values.items() if not _empty_section(key, value)}
    return _Document(written, lines, str(path))


def _parsed(text: str) -> tuple[yaml.Node | None, object]:
    """Parse YAML. Scalars under `kafka` stay text."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        for key, section in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == "kafka" and isinstance(section, yaml.MappingNode):
                _keep_text(loader, section)
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _keep_text(loader: yaml.SafeLoader, section: yaml.MappingNode) -> None:
    loader.flatten_mapping(section)
    for _, value in section.value:
        is_scalar = isinstance(value, yaml.ScalarNode) and value.tag.startswith(_CORE)
        if is_scalar and value.tag != _NULL:
            value.tag = _CORE + "str"


def _leading_zeros(node: yaml.Node | None, path: KeyPath, name: str) -> Iterator[str]:
    if path[:1] == ("kafka",):
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _leading_zeros(value, (*path, str(key.value)), name)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _leading_zeros(value, path, name)
    elif isinstance(node, yaml.ScalarNode):
        is_octal = not node.style and _OCTAL.fullmatch(node.value)
        if is_octal and not _takes_text(path):
            yield (
                f"{name} line {node.start_mark.line + 1}: `{'.'.join(path)}` is {node.value}. "
                "Some programs read a number with a leading zero as octal. Remove the zero."
            )


def _takes_text(path: KeyPath) -> bool:
    model: Any = Settings
    for part in path:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part not in fields:
            return False
        model = fields[part].annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            break
    return {str, type(None), ...} >= set(get_args(model) or (model,))


def _empty_section(key: object, value: object) -> bool:
    return value is None and (str(key),) in {path[:-1] for path in (*known_paths(), ("kafka", ""))}


def _lines(node: yaml.Node | None, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if not isinstance(node, yaml.MappingNode) or len(path) > 3:
        return
    for key, value in node.value:
        here = (*path, str(key.value))
        yield here, key.start_mark.line + 1
        yield from _lines(value, here)


def _said_of(error: yaml.YAMLError) -> str:
    """Describe a YAML error without quoting the line, which may hold a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " is not YAML: it has characters that YAML does not allow."
    mark, why = error.problem_mark, _QUOTED.sub("…", error.problem or "")
    return f" line {mark.line + 1}, column {mark.column + 1} is not YAML: {why}."


def _unknown_in_file(document: _Document) -> Iterator[str]:
    known = set(known_paths())
    for path in document.lines:
        if path in known or _is_free(path):
            continue
        if path[:-1] and path[:-1] not in known:
            continue
        siblings = [other[-1] for other in known if other[:-1] == path[:-1]]
        if not siblings:  # not a section: the key may be a secret, so it is not shown
            continue
        advice = _nearest(path[-1], siblings, "key")
        yield f"{document.where(path)}: `{'.'.join(path)}` is not a setting. {advice}"


def _unknown_in_choices(choices: _Choices) -> Iterator[str]:
    known = {".".join(path) for path in known_paths()}
    for path, key in choices.keys.items():
        if key not in known and not _is_free(path):
            yield f"`--set {key}` is not a setting. {_nearest(key, known, 'key')}"


def _is_free(path: KeyPath) -> bool:
    return any(path[: len(free)] == free for free in FREE_SECTIONS)


def _unknown_in_environment(environment: Mapping[str, str]) -> Iterator[str]:
    known = {variable_name(path) for path in known_paths()} | {CONFIG_VARIABLE}
    free = tuple(variable_name(path) + "__" for path in FREE_SECTIONS)
    for name in sorted(environment):
        variable = name.upper()
        if not variable.startswith(ENV_PREFIX) or variable in known or variable.startswith(free):
            continue
        if "__" not in variable and _OF_KUBERNETES.fullmatch(variable[len(ENV_PREFIX) :]):
            continue
        yield (
            f"The environment variable {name} is not a setting. {_nearest(variable, known, 'name')}"
        )


def _nearest(found: str, known: Mapping[str, Any] | list[str] | set[str], word: str) -> str:
    if near := get_close_matches(found, sorted(known), n=1, cutoff=0.5):
        return f"The nearest known {word} is `{near[0]}`."
    return f"Known here: {', '.join(sorted(known))}."


def _sentences(error: ValidationError, document: _Document, choices: _Choices) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        path = tuple(str(part) for part in problem["loc"] if part != "[key]")
        text = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        if problem["type"] == "model_type":
            text = "must have keys and values"
        shown = _shown(path, problem["input"])
        named = f"`{'.'.join(path)}`{shown}: " if path else ""
        yield f"{_place(path, document, choices)}: {named}{text}."


def _place(path: KeyPath, document: _Document, choices: _Choices) -> str:
    """Return the source of the value at `path`. If several sources set it, return the one that
    wins."""
    for known, key in choices.keys.items():
        if path and known[: len(path)] == path[: len(known)]:
            return f"`--set {key}`"
    variable = variable_name(path)
    if variable in {name.upper() for name in os.environ}:
        return f"The environment variable {variable}"
    return document.where(path)


def _shown(path: KeyPath, value: object) -> str:
    may_be_secret = path[:1] == ("kafka",) or path[:2] == ("admin", "tokens")
    may_be_secret = may_be_secret or ("admin", "token")[: len(path)] == path
    if may_be_secret or not isinstance(value, str | int):
        return ""
    return f" is {value!r}" if len(str(value)) <= 60 else ""
