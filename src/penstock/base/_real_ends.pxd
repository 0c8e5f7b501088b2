# The C types of _real_ends.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int64_t
from penstock.base cimport _calls

cdef class FileEnd:
    cdef public int fd
    cdef public object path

    @cython.locals(total=Py_ssize_t, written=Py_ssize_t)
    cpdef write(self, buffers, int64_t offset)

cdef class StreamEnd:
    cdef public int _fd
    cdef public object _socket

    cpdef recv_into(self, buffer)
    cpdef send(self, data)
