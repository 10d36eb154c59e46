"""What can stop the embedded broker, each with what to do about it."""

from pathlib import Path

from proxy.errors import ProxyError


class DataFromNewerKafka(ProxyError):
    """The data folder was written by a later Kafka than this one."""

    def __init__(self, data_dir: Path, found: str, ours: str) -> None:
        super().__init__(
            f"The data folder {data_dir} was made by Kafka {found}; this is Kafka {ours}.",
            "Choose another data folder, or delete this one with what is in it.",
        )


class BrokerFailed(ProxyError):
    """The embedded broker did not come up, or ended by itself."""
