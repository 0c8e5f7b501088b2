# The C types of _keys.py, for Cython. The Python file alone says what happens.
# "inline" on a declaration makes Cython warn, and is what makes the loops twice as fast (see setup.py).

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

cdef bint _COMPILED
cdef uint64_t _SIP_0, _SIP_1, _SIP_2, _SIP_3
cdef uint64_t _WORD_MAX
cdef uint64_t _WORDS

@cython.locals(
    v0=uint64_t, v1=uint64_t, v2=uint64_t, v3=uint64_t, word=uint64_t, byte=uint64_t, blocks=Py_ssize_t,
    step=Py_ssize_t, at=Py_ssize_t, rounds=int, _=int,
)
cdef inline void _sip_hash(
    const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t length, uint64_t seed_low, uint64_t seed_high,
    uint64_t[::1] digest,
) noexcept nogil

cdef inline void _hash(
    const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t length, uint64_t seed_low, uint64_t seed_high,
    uint64_t[::1] digest,
) noexcept nogil

@cython.final
cdef class KeyMap:
    cdef uint64_t[::1] _digest
    cdef uint64_t _seed_high
    cdef uint64_t _seed_low
    cdef uint64_t[::1] _slots
    cdef readonly int64_t entries
    cdef readonly int64_t entries_max
    cdef public int64_t latest_offset
    cdef readonly uint64_t slot_count

    @cython.locals(index=Py_ssize_t, length=int64_t, offset=int64_t, at=uint64_t)
    cpdef Py_ssize_t put(
        self,
        const uint8_t[::1] area,
        Py_ssize_t count,
        const int32_t[::1] key_start,
        const int32_t[::1] key_length,
        const int32_t[::1] offset_delta,
        int64_t base_offset,
        int64_t from_offset,
    ) except -1

    @cython.locals(low=uint64_t, high=uint64_t, at=uint64_t, end=uint64_t)
    cdef inline uint64_t _find(self, const uint8_t[::1] area, Py_ssize_t start, Py_ssize_t length) noexcept nogil

    @cython.locals(index=Py_ssize_t, offset=int64_t, last=int64_t, is_tombstone=bint, stays=int)
    cpdef select(
        self,
        const uint8_t[::1] area,
        Py_ssize_t count,
        const int32_t[::1] key_start,
        const int32_t[::1] key_length,
        const int32_t[::1] value_length,
        const int32_t[::1] offset_delta,
        int64_t base_offset,
        bint keeps_tombstones,
        uint8_t[::1] kept,
        int64_t[::1] counts,
    )

@cython.locals(start=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t)
cpdef Py_ssize_t copy_kept(
    uint8_t[::1] out,
    const uint8_t[::1] area,
    Py_ssize_t count,
    const uint8_t[::1] kept,
    const int32_t[::1] record_end,
) except -1

@cython.locals(is_found=bint, largest=int64_t, index=Py_ssize_t)
cpdef int64_t largest_kept(Py_ssize_t count, const uint8_t[::1] kept, const int64_t[::1] timestamp_delta) except? -1
