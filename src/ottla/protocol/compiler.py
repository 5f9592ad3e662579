"""Generates one flat encode and one flat decode function for a (message table, version).

Only this module writes code as text, and only here types are given up (``Any``); ``schema.Message``
gives the functions types again. Knows fields and primitives, nothing above. A function is compiled
on its first use, so a start costs nothing for APIs that no client uses.

The functions are fast because neighbouring fixed-width fields, the length after them and the tag
count share one ``struct`` call, one-byte varints are read in line, and nested structs are written
out in line, without a call per element. The decoder is safe because ``struct`` and indexing check
the end of the buffer, a length is compared with the bytes left, and the count of an array with the
least bytes that its elements need and with a budget for the whole message.
"""

import struct
from collections.abc import Callable
from typing import Any

from ottla.errors import MalformedMessage
from ottla.protocol.fields import FIXED_WIDTH_BYTES, Field, Required, Versions, Wire
from ottla.protocol.primitives import (
    MAX_ELEMENTS,
    MAX_TAGS,
    get_uvarint,
    long_uvarint,
    put_compact_records,
    put_records,
    put_uvarint,
    skip_tags,
)

LENGTH_FORMAT = {Wire.STRING: "h", Wire.BYTES: "i", Wire.RECORDS: "i", Wire.ARRAY: "i"}
"""The format of a length in versions that are not flexible; flexible versions have a varint."""

STRING_BYTES_MAX = 32767
"""The longest text, also in flexible versions: Kafka refuses longer ones, and where a text is
stored (a group id) its length is an int16."""

STEP_ELEMENTS = 200
"""A generator yields after so many structs and texts in arrays: about 0.2 ms."""


def compile_encoder(
    table: Any, version: int, *, flexible: bool, in_steps: bool = False
) -> Callable[..., Any]:
    """Return ``encode(message, out, splices)`` for one version of a table.

    With ``in_steps`` it is a generator that yields every ``STEP_ELEMENTS`` elements.
    """
    writer = _EncoderWriter(table.__name__, version, flexible=flexible, in_steps=in_steps)
    writer.struct(table, "message", 1)
    return writer.finish("encode", "def encode(message, out, splices):")


def compile_decoder(
    table: Any, version: int, *, flexible: bool, in_steps: bool = False
) -> Callable[..., Any]:
    """Return ``decode(buffer, position, end) -> (message, position)`` for one version of a table.

    It raises nothing but MalformedMessage, whatever the bytes are. With ``in_steps`` it is a
    generator that yields every ``STEP_ELEMENTS`` elements.
    """
    writer = _DecoderWriter(table.__name__, version, flexible=flexible, in_steps=in_steps)
    writer.frame(table)
    return writer.finish("decode", "def decode(buffer, position, end):")


def compile_constructor(table: Any) -> Callable[..., None]:
    """Return a table's ``__init__``, which takes keywords only and never shares a default list."""
    names: dict[str, Any] = {}
    parameters = ["self", "*"] if table.FIELDS else ["self"]
    lines = []
    for name, field in table.FIELDS.items():
        if field.default is Required.REQUIRED:
            parameters.append(name)
            lines.append(f"    self.{name} = {name}")
        elif isinstance(field.default, list):
            parameters.append(f"{name}=()")
            lines.append(f"    self.{name} = [] if {name} == () else {name}")
        else:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            lines.append(f"    self.{name} = {name}")
    source = [f"def __init__({', '.join(parameters)}):", *(lines or ["    pass"])]
    return _function("__init__", source, names, f"<{table.__name__} constructor>")


def _function(
    name: str, source: list[str], names: dict[str, Any], where: str
) -> Callable[..., Any]:
    exec(compile("\n".join(source), where, "exec"), names)
    function: Callable[..., Any] = names[name]
    return function


def _present(table: Any, version: int) -> list[tuple[str, Field]]:
    return [item for item in table.FIELDS.items() if version in item[1].versions]


def _positional(table: Any, version: int) -> list[tuple[str, Field]]:
    return [item for item in _present(table, version) if item[1].tag is None]


def _tagged(table: Any, version: int) -> list[tuple[str, Field]]:
    tagged = [item for item in _present(table, version) if item[1].tag is not None]
    return sorted(tagged, key=lambda item: item[1].tag or 0)


class _Writer:
    """A function that is being written: its lines, the names it uses, and the open run.

    The open run is a sequence of neighbouring fixed-width fields that no line handles yet.
    """

    def __init__(self, name: str, version: int, *, flexible: bool, in_steps: bool) -> None:
        self.title = f"{name} v{version}"
        self.in_steps = in_steps
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self.serial = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def name(self, stem: str, value: object) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def finish(self, name: str, signature: str) -> Callable[..., Any]:
        body = self.lines or ["    pass"]
        if self.in_steps:  # A yield even without arrays makes it a generator.
            body = [f"    left = {STEP_ELEMENTS}", "    if not left: yield", *body]
        return _function(name, [signature, *body], self.names, f"<{self.title} {name}>")

    def step(self, depth: int) -> None:
        """Write a yield that happens every ``STEP_ELEMENTS`` elements."""
        if self.in_steps:
            self.line(depth, "left -= 1")
            self.line(depth, f"if not left: left = {STEP_ELEMENTS}; yield")

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def minimum_bytes(self, of: Any) -> int:
        """Return the least number of bytes that an element of type ``of`` takes; at least 1."""
        if isinstance(of, Wire):
            return FIXED_WIDTH_BYTES.get(of) or self.prefix_bytes(of)
        total = 1 if self.flexible else 0
        for _, field in _positional(of, self.version):
            if field.wire is Wire.STRUCT:
                total += 1 if self.nullable(field) else self.minimum_bytes(field.of)
            else:
                total += FIXED_WIDTH_BYTES.get(field.wire) or self.prefix_bytes(field.wire)
        return max(total, 1)

    def prefix_bytes(self, wire: Wire) -> int:
        return 1 if self.flexible else struct.calcsize(">" + LENGTH_FORMAT[wire])


class _EncoderWriter(_Writer):
    """Writes an encoder. ``out``: the bytearray it appends to; a tagged field has its own."""

    out = "out"

    def flush(self, depth: int, *extra: tuple[str, str]) -> None:
        """Write the open run, then ``extra``; format ``x`` is a zero byte without a value."""
        run = [*self.run, *extra]
        if run == [("x", "")]:
            self.line(depth, f"{self.out}.append(0)")
        elif run:
            form = ">" + "".join(form for form, _ in run)
            values = ", ".join(value for _, value in run if value)
            pack = self.name("pack", struct.Struct(form).pack)
            self.line(depth, f"{self.out} += {pack}({values})")

    def close(self, depth: int) -> None:
        self.flush(depth)
        self.run = []

    def length(self, depth: int, wire: Wire, value: str) -> None:
        """Write the open run, then the length ``value``. The caller must empty the run."""
        if not self.flexible:
            self.flush(depth, (LENGTH_FORMAT[wire], value))
            return
        self.names["put_uvarint"] = put_uvarint
        self.line(depth, f"n = {value} + 1")
        self.line(depth, "if n < 128:")
        if self.run:
            self.flush(depth + 1, ("B", "n"))
        else:
            self.line(depth + 1, f"{self.out}.append(n)")
        self.line(depth, "else:")
        self.flush(depth + 1)
        self.line(depth + 1, f"put_uvarint({self.out}, n)")

    def struct(self, table: Any, source: str, depth: int) -> None:
        for name, field in _positional(table, self.version):
            self.field(field, f"{source}.{name}", depth)
        if not self.flexible:
            self.close(depth)
            return
        tagged = _tagged(table, self.version)
        if tagged:
            self.close(depth)
            self.tags(tagged, source, depth)
        else:
            self.run.append(("x", ""))
            self.close(depth)

    def field(self, field: Field, source: str, depth: int) -> None:
        if field.wire in FIXED_WIDTH_BYTES:
            self.run.append((field.wire.value, source))
            return
        if field.wire is Wire.STRUCT and not self.nullable(field):
            self.close(depth)
            value = self.fresh("struct")
            self.line(depth, f"{value} = {source}")
            self.struct(field.of, value, depth)
            return
        value = self.fresh("value")
        self.line(depth, f"{value} = {source}")
        if self.nullable(field):
            self.line(depth, f"if {value} is None:")
            self.flush(depth + 1, self.null(field.wire))
            self.line(depth, "else:")
            depth += 1
        if field.wire is Wire.STRUCT:
            self.run.append(("b", "1"))
            self.close(depth)
            self.struct(field.of, value, depth)
        else:
            self.variable(field, value, depth)
        self.run = []

    def null(self, wire: Wire) -> tuple[str, str]:
        if wire is Wire.STRUCT:
            return "b", "-1"
        return ("x", "") if self.flexible else (LENGTH_FORMAT[wire], "-1")

    def variable(self, field: Field, value: str, depth: int) -> None:
        if field.wire is Wire.STRING:
            self.string(value, depth)
        elif field.wire is Wire.BYTES:
            self.length(depth, Wire.BYTES, f"len({value})")
            self.line(depth, f"{self.out} += {value}")
        elif field.wire is Wire.RECORDS:
            if self.out != "out":
                raise TypeError(f"{self.title}: records inside a tagged field")
            put = put_compact_records if self.flexible else put_records
            self.flush(depth)
            self.names[put.__name__] = put
            self.line(depth, f"{put.__name__}({self.out}, {value}, splices)")
        else:
            self.length(depth, Wire.ARRAY, f"len({value})")
            self.run = []
            self.elements(field.of, value, depth)

    def string(self, value: str, depth: int) -> None:
        self.line(depth, f"text = {value}.encode()")
        self.length(depth, Wire.STRING, "len(text)")
        self.line(depth, f"{self.out} += text")

    def elements(self, of: Any, value: str, depth: int) -> None:
        if of is Wire.UUID:
            self.line(depth, f"{self.out} += b''.join({value})")
        elif of in FIXED_WIDTH_BYTES:
            self.names["pack_many"] = struct.pack
            self.line(depth, f"{self.out} += pack_many(f'>{{len({value})}}{of.value}', *{value})")
        else:
            item = self.fresh("item")
            self.line(depth, f"for {item} in {value}:")
            self.step(depth + 1)
            if of is Wire.STRING:
                self.string(item, depth + 1)
            else:
                self.struct(of, item, depth + 1)

    def tags(self, tagged: list[tuple[str, Field]], source: str, depth: int) -> None:
        """Write the tagged fields; in the usual case all have their defaults: a zero count."""
        sent = {name: self.sent(field, f"{source}.{name}") for name, field in tagged}
        self.names["put_uvarint"] = put_uvarint
        self.line(depth, f"if not ({' or '.join(sent.values())}):")
        self.line(depth + 1, f"{self.out}.append(0)")
        self.line(depth, "else:")
        self.line(
            depth + 1, f"{self.out}.append({' + '.join(f'({test})' for test in sent.values())})"
        )
        outer = self.out
        for name, field in tagged:
            self.out = self.fresh("part")
            self.line(depth + 1, f"if {sent[name]}:")
            self.line(depth + 2, f"{self.out} = bytearray()")
            self.field(field, f"{source}.{name}", depth + 2)
            self.close(depth + 2)
            self.line(depth + 2, f"put_uvarint({outer}, {field.tag})")
            self.line(depth + 2, f"put_uvarint({outer}, len({self.out}))")
            self.line(depth + 2, f"{outer} += {self.out}")
        self.out = outer

    def sent(self, field: Field, source: str) -> str:
        """Return the expression that is true when a tagged field differs from its default."""
        if field.default is None:
            return f"{source} is not None"
        return f"{source} != {self.name('default', field.default)}"


class _DecoderWriter(_Writer):
    """Writes a decoder. Locals: ``buffer``, ``position``, ``end``, ``n`` (the length read last)."""

    def frame(self, table: Any) -> None:
        self.names |= {
            "Malformed": MalformedMessage,
            "StructError": struct.error,
            "new": object.__new__,
            "long_uvarint": long_uvarint,
            "get_uvarint": get_uvarint,
            "skip_tags": skip_tags,
            "unpack_many": struct.unpack_from,
        }
        self.line(1, "if len(buffer) != end:")
        self.line(2, "if len(buffer) < end: " + self.malformed("ends too early"))
        self.line(2, "buffer = buffer[:end]")
        self.line(1, f"budget = {MAX_ELEMENTS}")
        self.line(1, "try:")
        self.struct(table, "message", 2)
        self.line(1, "except (StructError, IndexError):")
        self.line(2, self.malformed("ends too early") + " from None")
        self.line(1, "return message, position")

    def malformed(self, what: str) -> str:
        return f"raise Malformed({f'{self.title}: {what}'!r})"

    def flush(self, depth: int) -> None:
        """Write one unpack of the open run into its targets."""
        run, self.run = self.run, []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self.line(depth, f"{run[0][1]} = buffer[position]")
            self.line(depth, "position += 1")
            return
        layout = struct.Struct(">" + "".join(form for form, _ in run))
        unpack = self.name("unpack", layout.unpack_from)
        targets = ", ".join(target for _, target in run)
        self.line(depth, f"{targets}, = {unpack}(buffer, position)")
        self.line(depth, f"position += {layout.size}")

    def length(self, depth: int, wire: Wire) -> None:
        """Write the open run, then a length, which is then in ``n``; -1: null."""
        self.run.append(("B" if self.flexible else LENGTH_FORMAT[wire], "n"))
        self.flush(depth)
        if self.flexible:
            self.line(depth, "if n > 127:")
            self.line(depth + 1, "n, position = long_uvarint(n, buffer, position)")
            if wire is Wire.STRING:
                too_long = self.malformed(f"a text of more than {STRING_BYTES_MAX} bytes")
                self.line(depth + 1, f"if n > {STRING_BYTES_MAX + 1}: {too_long}")
            self.line(depth, "n -= 1")

    def struct(self, table: Any, target: str, depth: int) -> None:
        self.line(depth, f"{target} = new({self.name('Table', table)})")
        positional = _positional(table, self.version)
        for name, field in table.FIELDS.items():
            if (name, field) not in positional:
                self.default(field, f"{target}.{name}", f"{table.__name__}.{name}", depth)
        for name, field in positional:
            self.field(field, f"{target}.{name}", name, depth)
        if self.flexible:
            self.run.append(("B", "n"))
        self.flush(depth)
        if self.flexible:
            self.tags(_tagged(table, self.version), target, depth)

    def default(self, field: Field, target: str, title: str, depth: int) -> None:
        if field.default is Required.REQUIRED:
            raise TypeError(f"{title} is not in version {self.version}: it needs a default")
        value = "[]" if isinstance(field.default, list) else self.name("default", field.default)
        self.line(depth, f"{target} = {value}")

    def field(self, field: Field, target: str, title: str, depth: int) -> None:
        if field.wire in FIXED_WIDTH_BYTES:
            self.run.append((field.wire.value, target))
            return
        if field.wire is Wire.STRUCT:
            self.nested(field, target, depth)
            return
        self.length(depth, field.wire)
        self.line(depth, "if n < 0:")
        if self.nullable(field):
            self.line(depth + 1, f"{target} = None")
        else:
            self.line(depth + 1, self.malformed(f"{title} is null"))
        self.line(depth, "else:")
        if field.wire is Wire.ARRAY:
            self.array(field.of, target, title, depth + 1)
        else:
            self.slice(field.wire, target, title, depth + 1)

    def nested(self, field: Field, target: str, depth: int) -> None:
        value = self.fresh("value")
        if self.nullable(field):
            self.run.append(("b", "n"))
            self.flush(depth)
            least = 0 if field.tag is None else 1  # Null is -1; in a tagged field it is 0.
            self.line(depth, f"if n < {least}: {target} = None")
            self.line(depth, "else:")
            depth += 1
        else:
            self.flush(depth)
        self.struct(field.of, value, depth)
        self.line(depth, f"{target} = {value}")

    def slice(self, wire: Wire, target: str, title: str, depth: int) -> None:
        self.line(depth, "stop = position + n")
        self.line(depth, "if stop > end: " + self.malformed(f"{title} ends outside the message"))
        value = {
            Wire.STRING: "buffer[position:stop].tobytes().decode('utf-8', 'replace')",  # as Java
            Wire.BYTES: "buffer[position:stop].tobytes()",
            Wire.RECORDS: "buffer[position:stop]",
        }[wire]
        self.line(depth, f"{target} = {value}")
        self.line(depth, "position = stop")

    def array(self, of: Any, target: str, title: str, depth: int) -> None:
        self.line(depth, "budget -= n")
        self.line(depth, f"if n * {self.minimum_bytes(of)} > end - position or budget < 0:")
        self.line(depth + 1, self.malformed(f"{title} has more elements than fit"))
        if of is Wire.UUID:
            self.line(depth, f"{target} = list(unpack_many('16s' * n, buffer, position))")
            self.line(depth, "position += n * 16")
            return
        if of in FIXED_WIDTH_BYTES:
            many = f"unpack_many(f'>{{n}}{of.value}', buffer, position)"
            self.line(depth, f"{target} = list({many})")
            self.line(depth, f"position += n * {FIXED_WIDTH_BYTES[of]}")
            return
        items, item = self.fresh("items"), self.fresh("item")
        self.line(depth, f"{target} = {items} = []")
        self.line(depth, "for _ in range(n):")
        self.step(depth + 1)
        if of is Wire.STRING:
            self.field(_ELEMENT_STRING, item, f"an element of {title}", depth + 1)
        else:
            self.struct(of, item, depth + 1)
        self.line(depth + 1, f"{items}.append({item})")

    def tags(self, tagged: list[tuple[str, Field]], target: str, depth: int) -> None:
        self.line(depth, "if n:")
        depth += 1
        self.line(depth, "if n > 127: n, position = long_uvarint(n, buffer, position)")
        if not tagged:
            self.line(depth, "position = skip_tags(n, buffer, position, end)")
            return
        tag, previous, stop = self.fresh("tag"), self.fresh("previous"), self.fresh("stop")
        self.line(depth, f"if n > {MAX_TAGS}: " + self.malformed("too many tagged fields"))
        self.line(depth, f"{previous} = -1")
        self.line(depth, "for _ in range(n):")
        depth += 1
        self.line(depth, f"{tag}, position = get_uvarint(buffer, position)")
        self.line(depth, f"if {tag} <= {previous}: " + self.malformed("tags out of order"))
        self.line(depth, f"{previous} = {tag}")
        self.line(depth, "n, position = get_uvarint(buffer, position)")
        self.line(depth, f"{stop} = position + n")
        self.line(depth, f"if {stop} > end: " + self.malformed("a tag ends outside the message"))
        for index, (name, field) in enumerate(tagged):
            self.line(depth, f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.field(field, f"{target}.{name}", name, depth + 1)
            self.flush(depth + 1)
            self.line(
                depth + 1, f"if position != {stop}: " + self.malformed(f"{name} has a wrong size")
            )
        self.line(depth, f"else: position = {stop}")


_ELEMENT_STRING = Field(
    Wire.STRING, Versions.parse("0+"), Versions.parse(""), Required.REQUIRED, None, None
)
