# The C types of _rows.py, for Cython. The Python file alone says what happens.
# "inline" on a declaration makes Cython warn, and is what makes the loops fast (see setup.py).

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from penstock.wire cimport _copying

cdef bint _COMPILED
cdef int64_t _TIMESTAMP_MS_MAX
cdef int64_t _INT32_MAX
cdef int64_t _UINT32_MAX
cdef uint32_t _MURMUR_SEED
cdef uint32_t _MURMUR_FACTOR

cdef inline bint _is_null(const uint8_t[::1] validity, Py_ssize_t row) noexcept

@cython.locals(index=Py_ssize_t, begin=int64_t, end=int64_t)
cpdef locate(
    const int64_t[::1] offsets,
    Py_ssize_t first,
    Py_ssize_t count,
    int64_t data_start,
    int64_t data_size,
    const uint8_t[::1] validity,
    Py_ssize_t validity_first,
    int32_t[::1] start,
    int32_t[::1] length,
)

cpdef int64_t murmur2(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t length) except -1

@cython.locals(
    state=uint32_t, word=uint32_t, byte=uint32_t, position=Py_ssize_t, end=Py_ssize_t, rest=Py_ssize_t,
)
cdef inline uint32_t _murmur2(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t length) noexcept

@cython.locals(
    is_given=bint, index=Py_ssize_t, turn=int64_t, left=int64_t, length=Py_ssize_t, begin=Py_ssize_t,
    partition=int64_t, state=int64_t,
)
cpdef Py_ssize_t choose_partitions(
    Py_ssize_t count,
    int64_t partitions,
    const uint8_t[::1] keys,
    const int32_t[::1] key_start,
    const int32_t[::1] key_length,
    const int32_t[::1] value_length,
    const int32_t[::1] given,
    Py_ssize_t given_first,
    const uint8_t[::1] given_validity,
    int64_t[::1] run,
    int32_t[::1] chosen,
) except? -2

@cython.locals(index=Py_ssize_t, partition=Py_ssize_t, place=int32_t)
cpdef sort_by_partition(
    const int32_t[::1] chosen, Py_ssize_t count, Py_ssize_t partitions, int32_t[::1] ends, int32_t[::1] order
)

@cython.locals(size=Py_ssize_t, index=Py_ssize_t, row=Py_ssize_t)
cpdef arrange(const int32_t[::1] source, const int32_t[::1] order, Py_ssize_t count, int32_t[::1] target)

@cython.locals(size=Py_ssize_t, index=Py_ssize_t, row=Py_ssize_t)
cpdef arrange_long(const int64_t[::1] source, const int32_t[::1] order, Py_ssize_t count, int64_t[::1] target)

@cython.locals(size=int)
cdef inline int _size_of_number(int64_t number) noexcept

@cython.locals(size=int64_t)
cdef inline int64_t _size_of_fields(int64_t key_size, int64_t value_size, int64_t headers_size) noexcept

@cython.locals(size=int64_t)
cpdef int64_t size_alone(int64_t key_size, int64_t value_size, int64_t headers_size)

@cython.locals(index=Py_ssize_t, size=int64_t)
cpdef Py_ssize_t first_too_large(
    const int32_t[::1] key_length,
    const int32_t[::1] value_length,
    const int32_t[::1] headers_start,
    const int32_t[::1] headers_end,
    Py_ssize_t count,
    int64_t size_max,
) except? -2

@cython.locals(
    index=Py_ssize_t, count=Py_ssize_t, taken=int64_t, latest=int64_t, timestamp=int64_t, size=int64_t,
)
cpdef Py_ssize_t fit(
    const int64_t[::1] timestamps,
    int64_t base_timestamp,
    Py_ssize_t first,
    Py_ssize_t last,
    Py_ssize_t count_before,
    const int32_t[::1] key_length,
    const int32_t[::1] value_length,
    const int32_t[::1] headers_start,
    const int32_t[::1] headers_end,
    int64_t room,
    int64_t[::1] timestamp_delta,
    int64_t[::1] found,
) except -1

cdef inline Py_ssize_t _put_number(uint8_t[::1] out, Py_ssize_t position, int64_t number) noexcept

@cython.locals(
    room=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t, header=Py_ssize_t, last=Py_ssize_t,
    begin=Py_ssize_t, length=Py_ssize_t,
)
cpdef Py_ssize_t write_headers(
    Py_ssize_t count,
    const int32_t[::1] list_offsets,
    Py_ssize_t list_first,
    const uint8_t[::1] list_validity,
    const int32_t[::1] key_offsets,
    Py_ssize_t key_first,
    const uint8_t[::1] key_validity,
    const uint8_t[::1] keys,
    const int32_t[::1] value_offsets,
    Py_ssize_t value_first,
    const uint8_t[::1] value_validity,
    const uint8_t[::1] values,
    uint8_t[::1] out,
    int32_t[::1] headers_start,
    int32_t[::1] headers_end,
) except? -2
