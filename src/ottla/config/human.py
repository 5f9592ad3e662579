"""Durations and sizes as people write them: ``7d``, ``1GiB``.

For the command line and for texts that people read. Files, the wire and the metadata store carry
Kafka's integers.
"""

from ottla.config.option import InvalidConfig, Option

_MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PER_UNIT = {"ms": 1, "s": 1000, "minutes": 60_000, "hours": 3_600_000}
_BYTES = {
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "kb": 10**3,
    "m": 1 << 20,
    "mib": 1 << 20,
    "mb": 10**6,
    "g": 1 << 30,
    "gib": 1 << 30,
    "gb": 10**9,
    "t": 1 << 40,
    "tib": 1 << 40,
    "tb": 10**12,
}


def is_whole(text: str) -> bool:
    """Whether ``text`` is digits, those of ASCII: Python takes every script's for numbers."""
    return text.isascii() and text.isdigit()


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of ``7d``, ``1.5h``, ``1h30m``, ``200ms``. Raises ValueError."""
    total = 0.0
    rest = text.strip().lower()
    while rest:
        number, unit, rest = _first_quantity(rest)
        if unit not in _MILLISECONDS:
            raise ValueError(f"{text!r} is not a duration; write 200ms, 30s, 5m, 2h, 7d or 1h30m")
        total += number * _MILLISECONDS[unit]
    return round(total)


def parse_size_bytes(text: str) -> int:
    """Return the bytes of ``64KiB``, ``1GiB``, ``10MB``, ``1g``. Raises ValueError."""
    number, unit, rest = _first_quantity(text.strip().lower())
    if rest or unit not in _BYTES:
        raise ValueError(f"{text!r} is not a size; write 512B, 64KiB, 10MB or 1GiB")
    return round(number * _BYTES[unit])


def plain(option: Option[object], text: str) -> str:
    """Turn a human duration or size into the integer, as text, that ``option`` takes.

    Any other text, such as a plain integer, is returned as it is. Raises InvalidConfig for a text
    that begins with a digit but is no quantity, or not a whole number of the option's unit.
    """
    stripped = text.strip()
    if not option.unit or not is_whole(stripped[:1]) or is_whole(stripped):
        return text
    try:
        if option.unit == "bytes":
            return str(parse_size_bytes(stripped))
        whole, remainder = divmod(parse_duration_ms(stripped), _PER_UNIT[option.unit])
    except ValueError as error:
        raise InvalidConfig(option.key, text, str(error)) from error
    if remainder:
        raise InvalidConfig(option.key, text, f"not a whole number of {option.unit}")
    return str(whole)


def duration_text(milliseconds: int) -> str:
    """Return an exact duration in short form: ``7d``, ``1h30m``, ``250ms``."""
    if milliseconds <= 0:
        return f"{milliseconds}ms"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, milliseconds = divmod(milliseconds, _MILLISECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def size_text(size_bytes: int) -> str:
    """Return a rounded size in short form: ``1 GiB``, ``204.3 MiB``, ``17 B``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " TiB"


def human_text(option: Option[object], value: object) -> str:
    """Return a large number of ms or bytes in short form; "" for any other value."""
    if not isinstance(value, int) or value < 1000 or value >= 1 << 62:
        return ""
    if option.unit == "ms":
        return duration_text(value)
    return size_text(value) if option.unit == "bytes" else ""


def _first_quantity(text: str) -> tuple[float, str, str]:
    """Split ``1h30m`` into 1.0, ``h`` and ``30m``."""
    end = 0
    while end < len(text) and (is_whole(text[end]) or text[end] == "."):
        end += 1
    unit_end = end
    while unit_end < len(text) and text[unit_end].isalpha():
        unit_end += 1
    try:
        number = float(text[:end])
    except ValueError:
        raise ValueError(f"{text!r} does not begin with a number") from None
    return number, text[end:unit_end], text[unit_end:].strip() if unit_end > end else text[end:]
