# The C types of _fetch_again.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int64_t

from penstock.broker._exchange cimport FileRange

cdef object _UNPACK_API
cdef object _UNPACK_CORRELATION
cdef object _UNPACK_EPOCH
cdef object _UNPACK_OFFSET
cdef Py_ssize_t _CORRELATION_AT
cdef Py_ssize_t _HEAD_AT

cdef class FetchAgain:
    cdef object _after
    cdef object _api
    cdef object _before
    cdef int64_t _bytes_max
    cdef int64_t _bytes_min
    cdef Py_ssize_t _frame_bytes
    cdef object _handler
    cdef bytes _head
    cdef bint _is_committed_only
    cdef bint _is_flexible
    cdef bytes _middle
    cdef Py_ssize_t _offset_at
    cdef object _pack
    cdef int64_t _pack_size_bytes
    cdef object _partition
    cdef bytes _rest
    cdef object _session
    cdef object _session_epoch
    cdef Py_ssize_t _session_epoch_at
    cdef bytes _tail
    cdef object _wanted

    cpdef bint is_for(self, frame)

    @cython.locals(offset=int64_t, high_watermark=int64_t, last_stable_offset=int64_t, end_offset=int64_t, size_bytes=int64_t)
    cdef _read(self, partition, frame, int64_t offset, started_s)

    cdef _go_on(self, session, int64_t offset, int64_t high_watermark, int64_t log_start_offset)

@cython.locals(out=bytearray)
cdef bytes _varint(int64_t value)
