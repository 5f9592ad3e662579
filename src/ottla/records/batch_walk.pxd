# What ottla.records.batch_walk needs of C.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose
from ottla.records.numbers cimport int32_at, int64_at, uint32_at
