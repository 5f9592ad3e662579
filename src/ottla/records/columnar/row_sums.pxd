# What ottla.records.columnar.row_sums needs of C.
from ottla.records.columnar.layout cimport ascend, check_validity, is_valid
