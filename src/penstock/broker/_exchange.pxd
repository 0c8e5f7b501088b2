# The C types of _exchange.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t _WHOLE_FRAME_BYTES_MIN
cdef Py_ssize_t _HEAD_AT
cdef Py_ssize_t _READ_RANGE_BYTES_MAX
cdef Py_ssize_t _UNSENT_BYTES_MAX
cdef Py_ssize_t _TIMED_MASK
cdef object _UNPACK_SIZE

cdef class FileRange:
    cdef readonly object file
    cdef readonly int64_t position
    cdef readonly int64_t size_bytes

cdef class Exchange:
    cdef public object _dispatch
    cdef public object _flush_soon
    cdef public object _intake
    cdef public bint _is_reading
    cdef public bint _is_watching_write
    cdef public object _out
    cdef public object _own
    cdef public object _recv_into
    cdef public object _send
    cdef public object _slots
    cdef public object _stream
    cdef public Py_ssize_t _unsent_bytes
    cdef public dict again
    cdef public object fetch_again
    cdef public Py_ssize_t head_end
    cdef public int64_t received_bytes
    cdef public int64_t sent_bytes
    cdef public bint was_active

    @cython.locals(count=Py_ssize_t)
    cpdef _on_readable(self)

    cpdef _answer(self, response)

    @cython.locals(sent=Py_ssize_t)
    cpdef _flush_now(self)

    cpdef _flush(self)

    cdef bint _can_join(self, first, second)

    @cython.locals(sent=int64_t)
    cdef _send_range(self, FileRange wanted)

    @cython.locals(sent=Py_ssize_t)
    cdef _send_buffer(self, data)

cdef class FrameDispatch:
    cdef public int64_t again_count
