# The C types of _produce_again.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int64_t, uint8_t
from penstock.log._append cimport Appended

cdef object _UNPACK_API_AND_CORRELATION
cdef Py_ssize_t _TAGS_BYTES

cdef class ProduceAgain:
    cdef object _answer
    cdef object _answer_size
    cdef object _api
    cdef object _append
    cdef Py_ssize_t _end
    cdef object _index
    cdef bint _is_flexible
    cdef object _is_free
    cdef object _partition
    cdef object _prefix
    cdef object _suffix
    cdef object _wait
    cdef readonly bytes head

    cdef bint _takes_now(self, partition)

@cython.locals(records_at=Py_ssize_t, size_bytes=int64_t)
cdef Py_ssize_t _classic_records(const uint8_t[::1] frame, Py_ssize_t position)

@cython.locals(frame_bytes=Py_ssize_t, end=Py_ssize_t, size_bytes=int64_t, more=int, shift=int)
cdef Py_ssize_t _flexible_records(const uint8_t[::1] frame, Py_ssize_t position)
