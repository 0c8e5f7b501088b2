# The C types of _columns.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from penstock.wire cimport _copying
from penstock.wire._batch cimport BatchHeader, read_header
from penstock.wire._records cimport scan

cdef bint _COMPILED
cdef int64_t _TIMESTAMP_MS_MAX
cdef int64_t _BASE_OFFSET_MAX
cdef Py_ssize_t _RUN_BYTES
cdef int64_t _INT32_MAX
cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef int _MAGIC
cdef int _COMPRESSED
cdef int _LOG_APPEND_TIME
cdef int _TRANSACTIONAL
cdef int _CONTROL

@cython.locals(
    size=Py_ssize_t, began=Py_ssize_t, row=Py_ssize_t, state=int, header=BatchHeader, limit=Py_ssize_t, attributes=int, count=int64_t,
)
cpdef int scan_batches(
    records,
    const uint8_t[::1] area,
    Py_ssize_t position,
    int64_t start,
    int64_t end,
    bint look_at_transactions,
    int64_t[::1] reached,
    int64_t[::1] offset,
    int64_t[::1] timestamp,
    int32_t[::1] timestamp_type,
    int32_t[::1] offset_delta,
    int32_t[::1] key_start,
    int32_t[::1] key_length,
    int32_t[::1] value_start,
    int32_t[::1] value_length,
    int32_t[::1] headers_start,
    int32_t[::1] headers_end,
) except -1

@cython.locals(
    count=int64_t, last=Py_ssize_t, index=Py_ssize_t, base_offset=int64_t, base=int64_t, delta=int64_t, is_of_log=bint,
)
cpdef scan_batch(
    const uint8_t[::1] area,
    Py_ssize_t begin,
    Py_ssize_t limit,
    BatchHeader header,
    Py_ssize_t row,
    int64_t[::1] offset,
    int64_t[::1] timestamp,
    int32_t[::1] timestamp_type,
    int32_t[::1] offset_delta,
    int32_t[::1] key_start,
    int32_t[::1] key_length,
    int32_t[::1] value_start,
    int32_t[::1] value_length,
    int32_t[::1] headers_start,
    int32_t[::1] headers_end,
)

@cython.locals(index=Py_ssize_t)
cpdef Py_ssize_t rows_within(
    const int32_t[::1] key_length,
    const int32_t[::1] value_length,
    const int32_t[::1] headers_start,
    const int32_t[::1] headers_end,
    Py_ssize_t first,
    Py_ssize_t last,
    bint with_key,
    bint with_value,
    bint with_headers,
    int64_t bytes_room,
) except -1

@cython.locals(index=Py_ssize_t, total=int64_t)
cpdef int64_t total_length(const int32_t[::1] length, Py_ssize_t first, Py_ssize_t last) except -1

@cython.locals(
    size=Py_ssize_t, room=Py_ssize_t, count=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
    field_size=Py_ssize_t, field_start=Py_ssize_t,
)
cpdef gather(
    const uint8_t[::1] area,
    const int32_t[::1] start,
    const int32_t[::1] length,
    Py_ssize_t first,
    Py_ssize_t last,
    Py_ssize_t row,
    int32_t[::1] offsets,
    uint8_t[::1] data,
    uint8_t[::1] validity,
)

cdef Py_ssize_t _number_end(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t limit) noexcept

@cython.locals(raw=int64_t, septet=int64_t, shift=int)
cdef int64_t _number(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept

@cython.locals(
    index=Py_ssize_t, position=Py_ssize_t, limit=Py_ssize_t, end=Py_ssize_t, here=int64_t, headers=int64_t, size=int64_t,
)
cpdef measure_headers(
    const uint8_t[::1] area,
    const int32_t[::1] headers_start,
    const int32_t[::1] headers_end,
    Py_ssize_t first,
    Py_ssize_t last,
    int64_t[::1] found,
)

@cython.locals(
    count=Py_ssize_t, header=int64_t, header_room=int64_t, key_position=int64_t, value_position=int64_t,
    index=Py_ssize_t, position=Py_ssize_t, limit=Py_ssize_t, end=Py_ssize_t, here=int64_t, length=int64_t, _=int64_t,
)
cpdef gather_headers(
    const uint8_t[::1] area,
    const int32_t[::1] headers_start,
    const int32_t[::1] headers_end,
    Py_ssize_t first,
    Py_ssize_t last,
    Py_ssize_t row,
    int32_t[::1] list_offsets,
    uint8_t[::1] list_validity,
    int32_t[::1] key_offsets,
    uint8_t[::1] keys,
    int32_t[::1] value_offsets,
    uint8_t[::1] values,
    uint8_t[::1] value_validity,
)
