# What _copying.py does, for modules that are compiled. Nothing is built from this file itself.

from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef inline Py_ssize_t copy(
    uint8_t[::1] out, Py_ssize_t position, const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t length
) noexcept:
    memcpy(&out[position], &data[start], length)
    return position + length
