"""Check-backs: what the proxy has written to the topics in which it asks about half messages."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.records.fingerprints import bytes_hash, headers_hash
from spark_jobs.records.header_names import CHECK, ID, PREFIX, TRANSACTION
from spark_jobs.records.headers import position_of, value_at
from spark_jobs.runtime.frames import Schema, conformed

CHECK_BACKS: Final[Schema] = {
    "topic": "string",
    "ident": "binary",
    "number": "bigint",
    "at_ms": "bigint",
    "key_hash": "bigint",
    "value_hash": "bigint",
    "headers_hash": "bigint",
    "stamps": "string",
}
"""A row for each check-back: whom it asks about, which check it is, and what it shows of the half
message. stamps: the names of its own `timer-` headers."""
ASKING: Final = b"check"


def check_backs(records: DataFrame) -> DataFrame:
    """CHECK_BACKS among the records (RECORDS) of check topics."""
    headers = f.col("headers")
    asking = records.filter(_value(TRANSACTION) == f.lit(ASKING))
    own = f.filter(headers, lambda header: header["key"].startswith(PREFIX))
    found = asking.withColumns(
        {
            "ident": _value(ID),
            "number": _value(CHECK).cast("string").try_cast("bigint"),
            "key_hash": bytes_hash(f.col("key")),
            "value_hash": bytes_hash(f.col("value")),
            "headers_hash": headers_hash(headers),
            "stamps": f.array_join(own["key"], ","),
        }
    )
    return conformed(found, CHECK_BACKS, {"at_ms": "timestamp_ms"})


def _value(name: str) -> Column:
    headers = f.col("headers")
    return value_at(headers, position_of(headers, name))
