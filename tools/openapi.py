"""Generator of docs/openapi.yaml, the reference of the admin API: `make openapi`."""

from pathlib import Path
from typing import Final

import yaml

from proxy.admin.app import document

REFERENCE: Final = Path("docs/openapi.yaml")


def written() -> str:
    return str(yaml.safe_dump(document(), sort_keys=False, width=110, allow_unicode=True))


if __name__ == "__main__":
    REFERENCE.write_text(written(), "utf-8")
