# What ottla.records.cleaning needs of C; the interpreted form copies by slices.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose
from ottla.records.numbers cimport (
    copy, int32_at, int64_at, put_varint, uint32_at, varint_size, varlong_at,
)
