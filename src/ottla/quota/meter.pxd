# What ottla.quota.meter needs of C; the interpreted form takes operator.getitem for it.
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE


cdef inline object item(object values, Py_ssize_t index):
    # Cython would look for an item of a named tuple as in any object, with ten times the work.
    if isinstance(values, tuple) and index < PyTuple_GET_SIZE(values):
        return <object>PyTuple_GET_ITEM(values, index)
    return values[index]
