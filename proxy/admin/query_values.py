"""What calls are given, read strictly. All functions raise Problem."""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.admin.exchange import bad_request
from proxy.protocol.bounded_json import JsonRefused, read_json

PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
LAST_PARTITION: Final = 2**31 - 1
OFFSET: Final = re.compile(r"0|[1-9][0-9]{0,17}")
SPAN: Final = re.compile(r"[0-9]{1,6}(ms|s|m|h|d)")
WAIT: Final = re.compile(r"([12]?[0-9]|30)s")


class Body(BaseModel):
    """A body of JSON: what is not known in it is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


B = TypeVar("B", bound=Body)


def read_body(kind: type[B], body: bytes) -> B:
    """The body, as the call takes it."""
    try:
        read_json(body)
        return kind.model_validate_json(body)
    except JsonRefused as refused:
        raise bad_request(f"The body is no JSON that is read here: {refused}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "The body"
        raise bad_request(f"{where}: {first['msg']}.") from None


def whole(value: object) -> object:
    """JSON's 2.0 is a whole number too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def wait_s_of(text: str) -> int:
    """How long the answer may take."""
    if WAIT.fullmatch(text) is None:
        raise bad_request("`wait` is a number of seconds from 0s to 30s.")
    return int(text[:-1])


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether something is wanted; it is not, unless that is said."""
    asked = query.get(name, "false")
    if asked not in {"true", "false"}:
        raise bad_request(f"`{name}` is true or false.")
    return asked == "true"


def place_in_path(partition: str, offset: str) -> tuple[int, int]:
    """The last two parts of a path, as numbers."""
    is_place = PARTITION.fullmatch(partition) and OFFSET.fullmatch(offset)
    if not is_place or int(partition) > LAST_PARTITION:
        raise bad_request("A record lies at topic/partition/offset.")
    return int(partition), int(offset)
