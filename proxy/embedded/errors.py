"""What can stop the embedded broker, each with what to do about it, and how its log tells."""

import re
from pathlib import Path

from proxy.errors import DataDirInUse, PortTaken, ProxyError

CHOOSE_PORT = "Stop what listens there, or choose another port (--port; 0 picks one)."
SHOWN_LINES = 15

_NO_ROOM = re.compile(r"No space left on device")
_NO_MEMORY = re.compile(r"OutOfMemoryError|insufficient memory|Could not reserve enough space")
_PORT = re.compile(r"Address already in use|BindException")
_IN_USE = re.compile(r"Failed to acquire lock on file")


class DataFromNewerKafka(ProxyError):
    """The data folder was written by a later Kafka than this one."""

    def __init__(self, data_dir: Path, found: str, ours: str) -> None:
        super().__init__(
            f"The data folder {data_dir} was made by Kafka {found}; this is Kafka {ours}.",
            "Choose another data folder, or delete this one with what is in it.",
        )


class BrokerFailed(ProxyError):
    """The embedded broker did not come up, or ended by itself."""


def explain(what: str, tail: list[str], data_dir: Path, host: str, port: int) -> ProxyError:
    """The error for a broker that ended: `what` happened; `tail` are the last lines of its log."""
    text = "\n".join(tail)
    if _PORT.search(text):
        return PortTaken(host, port, CHOOSE_PORT)
    if _IN_USE.search(text):
        return DataDirInUse(str(data_dir))
    if _NO_ROOM.search(text):
        return BrokerFailed(
            f"{what}: the disk under {data_dir} is full.", "Make room, or choose another folder."
        )
    if _NO_MEMORY.search(text):
        return BrokerFailed(
            f"{what}: there was not enough memory.", "Free some, or give the broker less heap."
        )
    shown = "\n".join(tail[-SHOWN_LINES:]) or "(nothing)"
    return BrokerFailed(f"{what}. Its log in {data_dir} ends with:\n{shown}")
