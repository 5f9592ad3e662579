# What ottla.records.rows needs of C.
from ottla.records.numbers cimport varint_size, varlong_at
