# The C types of _records.py, for Cython. The Python file alone says what happens.
# "inline" on a declaration makes Cython warn, and is what makes the loops twice as fast (see setup.py).

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t
from penstock.wire cimport _copying

cdef bint _COMPILED

cdef inline Py_ssize_t _varint_end(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t limit, Py_ssize_t size_max) noexcept

cdef Py_ssize_t _long_varint_end(
    const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t limit, Py_ssize_t size_max
) noexcept

@cython.locals(raw=int64_t)
cdef inline int64_t _varint(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept

@cython.locals(number=uint64_t, low=uint64_t, septet=uint64_t, shift=int)
cdef int64_t _long_varint(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept

@cython.locals(end=Py_ssize_t, count=int64_t, length=int64_t, _=int64_t)
cdef bint _headers_are_sound(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t limit) noexcept

@cython.locals(
    size=Py_ssize_t, index=Py_ssize_t, position=Py_ssize_t, end=Py_ssize_t, limit=Py_ssize_t,
    length=int64_t, last_offset_delta=int64_t,
)
cpdef scan(
    const uint8_t[::1] area,
    Py_ssize_t count,
    int64_t[::1] timestamp_delta,
    int32_t[::1] offset_delta,
    int32_t[::1] key_start,
    int32_t[::1] key_length,
    int32_t[::1] value_start,
    int32_t[::1] value_length,
    int32_t[::1] headers_start,
    int32_t[::1] headers_end,
)

@cython.locals(size=int)
cdef inline int _varint_size(int64_t number) noexcept

cdef inline Py_ssize_t _put_varint(uint8_t[::1] out, Py_ssize_t position, int64_t number) noexcept

@cython.locals(sign=int64_t, septet=int64_t)
cdef Py_ssize_t _put_long_varint(uint8_t[::1] out, Py_ssize_t position, int64_t number) noexcept

@cython.locals(
    room=Py_ssize_t, key_limit=Py_ssize_t, value_limit=Py_ssize_t, header_limit=Py_ssize_t, position=Py_ssize_t,
    index=Py_ssize_t, key_from=int64_t, key_size=int64_t, value_from=int64_t, value_size=int64_t,
    headers_from=int64_t, headers_size=int64_t, timestamp=int64_t, offset=int64_t, length=int64_t,
)
cpdef Py_ssize_t encode(
    uint8_t[::1] out,
    Py_ssize_t count,
    const int64_t[::1] timestamp_delta,
    const int32_t[::1] offset_delta,
    const uint8_t[::1] keys,
    const int32_t[::1] key_start,
    const int32_t[::1] key_length,
    const uint8_t[::1] values,
    const int32_t[::1] value_start,
    const int32_t[::1] value_length,
    const uint8_t[::1] headers,
    const int32_t[::1] headers_start,
    const int32_t[::1] headers_end,
) except -1
