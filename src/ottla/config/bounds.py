"""Bounds and validators that several options share, such as a broker option and its topic option.

Source: Kafka's configuration reference.
"""

from ottla.config.option import Refusal, Validator, at_least, between, each_of, one_of

COMPRESSION_TYPES = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = each_of("compact", "delete")
TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")
MIGRATION_POLICIES = one_of(
    "disabled", "downgrade", "upgrade", "bidirectional", is_case_sensitive=False
)
LZ4_LEVELS = between(1, 17)
ZSTD_LEVELS = between(-131_072, 22)
POSITIVE = at_least(1)
NOT_NEGATIVE = at_least(0)


def _check_gzip_level(value: int) -> Refusal | None:
    if value == -1 or 1 <= value <= 9:
        return None
    return Refusal("Value must be between 1 and 9 or equal to -1")


GZIP_LEVELS = Validator("[1,...,9] or -1", _check_gzip_level)
