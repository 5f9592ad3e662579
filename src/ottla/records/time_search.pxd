# What ottla.records.time_search needs of C.
from ottla.records.numbers cimport varlong_at
