# The C types of _batch.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef bint _COMPILED
cdef Py_ssize_t _HEADER_SIZE
cdef int64_t _LOG_OVERHEAD
cdef int _MAGIC
cdef int _COMPRESSION_MASK
cdef int _COMPRESSION_MAX

cdef class BatchHeader:
    cdef readonly int64_t base_offset
    cdef readonly int32_t length
    cdef readonly int32_t leader_epoch
    cdef readonly int8_t magic
    cdef readonly uint32_t crc
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count

cpdef BatchHeader read_header(buffer, Py_ssize_t position=*)

@cython.locals(header=BatchHeader)
cdef BatchHeader _read(const uint8_t[::1] data, Py_ssize_t position)

cdef inline int32_t _int8(const uint8_t[::1] data, Py_ssize_t at) noexcept
cdef inline int32_t _int16(const uint8_t[::1] data, Py_ssize_t at) noexcept

cdef inline uint32_t _uint16(const uint8_t[::1] data, Py_ssize_t at) noexcept

@cython.locals(high=uint32_t)
cdef inline uint32_t _uint32(const uint8_t[::1] data, Py_ssize_t at) noexcept

@cython.locals(high=int32_t)
cdef inline int32_t _int32(const uint8_t[::1] data, Py_ssize_t at) noexcept

@cython.locals(high=int64_t)
cdef inline int64_t _int64(const uint8_t[::1] data, Py_ssize_t at) noexcept

@cython.locals(header=BatchHeader, size_bytes=int64_t, available=int64_t, crc=uint32_t)
cpdef BatchHeader check_produced_batch(records)

cpdef stamp(batch, int64_t base_offset, int64_t leader_epoch)
