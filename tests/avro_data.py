"""Schemas of Avro by chance, and values of them: as fastavro writes them, and as Spark means them.

For tests of ``value.format=avro``, with Spark's own decoder beside it and without.
"""

import datetime as dt
import io
import struct
from decimal import Decimal

import fastavro
from hypothesis import strategies as st

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
YEAR_9000_US = 221_845_392_000_000_000
SIMPLE = [
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed",
    "decimal", "fixed decimal", "date", "timestamp-millis", "timestamp-micros",
    "local-timestamp-millis", "local-timestamp-micros", "uuid", "time-millis",
]  # fmt: skip
NESTED = ["record", "array", "map", "nullable", "union", "widened"]
BRANCHES = ["boolean", "int", "double", "bytes", "string", "enum", "fixed", "record", "array"]


class Schemas:
    """One schema; ``pick`` is a function that picks one of a sequence."""

    def __init__(self, pick, simple=SIMPLE):
        self._pick = pick
        self._simple = simple
        self._count = 0
        self._named = []

    def root(self):
        """A record of several fields."""
        return self._record(3)

    def any(self, depth):
        kind = self._pick(self._simple + NESTED * 2 if depth else self._simple)
        return self._of(kind, depth)

    def _of(self, kind, depth):
        match kind:
            case "enum":
                size = self._pick([1, 3, 70])
                return self._name({"type": "enum", "symbols": [f"S{n}" for n in range(size)]})
            case "fixed":
                return self._name({"type": "fixed", "size": self._pick([0, 1, 16])})
            case "decimal" | "fixed decimal":
                precision = self._pick([1, 9, 18, 19, 38])
                scale = self._pick([0, precision // 2, precision])
                decimal = {"logicalType": "decimal", "precision": precision, "scale": scale}
                if kind == "decimal":
                    return {"type": "bytes", **decimal}
                size = 8 if precision <= 18 else self._pick([16, 17])
                return self._name({"type": "fixed", "size": size, **decimal})
            case "date" | "time-millis":
                return {"type": "int", "logicalType": kind}
            case "uuid":
                return {"type": "string", "logicalType": kind}
            case "record":
                if self._named and self._pick([True, False, False]):
                    return self._pick(self._named)
                return self._record(depth - 1)
            case "array":
                return {"type": "array", "items": self.any(depth - 1)}
            case "map":
                return {"type": "map", "values": self.any(depth - 1)}
            case "nullable":
                other = self._of(self._pick([each for each in SIMPLE if each != "null"]), 0)
                return self._pick([["null", other], [other, "null"], [other]])
            case "union":
                kinds = [each for each in BRANCHES if self._pick([True, False])] or ["int"]
                branches = [self._of(each, max(depth - 1, 0)) for each in kinds]
                if "record" in kinds and isinstance(branches[kinds.index("record")], str):
                    branches[kinds.index("record")] = self._record(0)
                place = self._pick(range(len(branches) + 1))
                return [*branches[:place], *self._pick([[], ["null"]]), *branches[place:]]
            case "widened":
                pair = self._pick([["int", "long"], ["double", "float"]])
                return self._pick([pair, ["null", *pair], [pair[1], "null", pair[0]]])
            case str() if "timestamp" in kind:
                return {"type": "long", "logicalType": kind}
            case _:
                return kind

    def _record(self, depth):
        fields = [
            {"name": f"f{number}", "type": self.any(max(depth, 0))}
            for number in range(self._pick([1, 2, 5] if depth < 3 else [4, 9]))
        ]
        found = self._name({"type": "record", "fields": fields})
        self._named.append(found["name"])
        return found

    def _name(self, schema):
        self._count += 1
        return schema | {"name": f"T{self._count}"}


class Values:
    """Values of one schema: what fastavro is given, and what ``to_pylist`` should say."""

    def __init__(self, schema, pick, number):
        """``number(low, high)`` is a whole number, both inclusive."""
        self._pick, self._number = pick, number
        self._named = {}
        self._parsed = fastavro.parse_schema(schema, named_schemas=self._named)

    def one(self):
        """Return (bytes, what they mean)."""
        datum, meant = self._any(self._parsed)
        file = io.BytesIO()
        fastavro.schemaless_writer(file, self._parsed, datum)
        return file.getvalue(), meant

    def _any(self, schema):
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
        match kind, logical:
            case "null", _:
                return None, None
            case "boolean", _:
                return (value := self._pick([True, False])), value
            case "int", "date":
                days = self._number(-100_000, 2_000_000)
                return days, (EPOCH + dt.timedelta(days=days)).date()
            case "int", _:
                return (value := self._whole(31)), value
            case "long", "":
                return (value := self._whole(63)), value
            case "long", _:
                return self._time(logical)
            case "float", _:
                (value,) = struct.unpack("<f", struct.pack("<f", self._number(-(10**6), 10**6) / 7))
                return value, value
            case "double", _:
                return (value := self._number(-(10**9), 10**9) / 7), value
            case (("bytes" | "fixed"), "decimal"):
                whole = self._number(1 - 10 ** schema["precision"], 10 ** schema["precision"] - 1)
                value = Decimal((whole < 0, tuple(map(int, str(abs(whole)))), -schema["scale"]))
                return value, value
            case "bytes", _:
                return (value := bytes(self._number(0, 255) for _ in range(self._size()))), value
            case "fixed", _:
                value = bytes(self._number(0, 255) for _ in range(schema["size"]))
                return value, value
            case "string", "uuid":
                value = f"{self._number(0, 2**128 - 1):032x}"
                value = f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"
                return value, value
            case "string", _:
                return (value := self._text()), value
            case "enum", _:
                return (value := self._pick(schema["symbols"])), value
            case "array", _:
                pairs = [self._any(schema["items"]) for _ in range(self._size(4))]
                return [datum for datum, _ in pairs], [meant for _, meant in pairs]
            case "map", _:
                names = [f"{number}{self._text()}" for number in range(self._size(4))]
                found = {name: self._any(schema["values"]) for name in names}
                datum = {key: each for key, (each, _) in found.items()}
                return datum, [(key, each) for key, (_, each) in found.items()]
        found = {field["name"]: self._any(field["type"]) for field in schema["fields"]}
        datum = {name: each for name, (each, _) in found.items()}
        return datum, {name: each for name, (_, each) in found.items()}

    def _union(self, branches):
        chosen = self._pick(branches)
        resolved = self._named.get(chosen, chosen) if isinstance(chosen, str) else chosen
        datum, meant = self._any(chosen)
        kind = resolved if isinstance(resolved, str) else resolved.get("name", resolved["type"])
        if chosen != "null":
            datum = (kind, datum)
        rest = [each for each in branches if each != "null"]
        if len(rest) == 1 or chosen == "null":
            return datum, meant
        if set(map(str, rest)) in ({"int", "long"}, {"float", "double"}):
            return datum, meant
        place = rest.index(chosen)
        return datum, {f"member{n}": meant if n == place else None for n in range(len(rest))}

    def _whole(self, bits):
        edge = 1 << self._pick([0, 6, 7, 13, 14, 31, bits]) % (bits + 1)
        return self._pick([self._number(-edge, edge - 1), edge - 1, -edge])

    def _time(self, logical):
        micros = self._number(-(10**16), YEAR_9000_US)
        if "millis" in logical:
            micros -= micros % 1000
        moment = EPOCH + dt.timedelta(microseconds=micros)
        datum = micros // 1000 if "millis" in logical else micros
        return datum, moment.replace(tzinfo=None) if "local" in logical else moment

    def _size(self, most=40):
        return self._pick([0, 1, self._number(0, most)])

    def _text(self):
        return "".join(self._pick("aé世\U0001f600 ") for _ in range(self._size()))


@st.composite
def schemas_and_values(draw, most=8):
    """A schema, and some of its values as (bytes, what they mean)."""
    rng = draw(st.randoms(use_true_random=False))
    schema = Schemas(rng.choice).root()
    values = Values(schema, rng.choice, rng.randint)
    return schema, [values.one() for _ in range(draw(st.integers(1, most)))]
