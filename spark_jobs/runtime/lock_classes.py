"""Renew `classes.lst.xz` (for maintainers): `python -m spark_jobs.runtime.lock_classes LIST`.

LIST is what Java has written of `kafka-delay-proxy audit` of at most 15,000 records, at a broker
that is there already (its Java would write to LIST, too), with the environment variable
JAVA_TOOL_OPTIONS=-XX:DumpLoadedClassList=LIST. A class that is not there any more is passed over,
one that lacks is loaded as ever: time is all it costs.
"""

import lzma
import re
import sys
from pathlib import Path
from typing import Final

from spark_jobs.runtime.class_archive import LIST_NAME

NUMBERS: Final = re.compile(r" id: .*")
LEFT_OUT: Final = re.compile(r"#|.* source: |\S*\$Proxy\d")
"""Remarks, classes of other loaders than Java's own, and those that are made as a program runs."""


def packed(listed: str) -> bytes:
    """The classes of Java's list, without their numbers in that run."""
    lines = [line for line in listed.splitlines() if not LEFT_OUT.match(line)]
    text = "".join(f"{NUMBERS.sub('', line)}\n" for line in lines)
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    found = packed(Path(sys.argv[1]).read_text("utf-8"))
    Path(__file__).with_name(LIST_NAME).write_bytes(found)
