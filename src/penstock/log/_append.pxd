# The C types of _append.py, for Cython. The Python file alone says what happens.

cimport cython
from libc.stdint cimport int64_t
from penstock.wire._batch cimport BatchHeader, stamp

cdef int64_t _NONE
cdef Py_ssize_t _BATCHES_KEPT
cdef Py_ssize_t _RECENT_BATCHES_MAX
cdef int64_t _SEQUENCE_MASK
cdef int _CONTROL
cdef int _LOG_APPEND_TIME
cdef int _TRANSACTIONAL

cdef class Appended:
    cdef readonly int64_t base_offset
    cdef readonly bint duplicate
    cdef readonly int64_t last_offset
    cdef readonly int64_t log_append_time_ms

cdef class ProducedBatch:
    cdef readonly int64_t first_offset
    cdef readonly int64_t first_sequence
    cdef readonly int64_t last_offset
    cdef readonly int64_t last_sequence
    cdef public int64_t timestamp

cdef class ProducerState:
    cdef public list batches
    cdef public int64_t coordinator_epoch
    cdef public int64_t epoch
    cdef public int64_t last_timestamp
    cdef public int64_t producer_id
    cdef public int64_t transaction_first_offset

cdef class ProducerTable:
    cdef public dict _by_id
    cdef public dict _open
    cdef public int64_t first_unstable_offset

    @cython.locals(sequence=int64_t, epoch=int64_t, expected=int64_t, state=ProducerState, batches=list, last=ProducedBatch)
    cpdef ProducedBatch check(self, BatchHeader header)

    @cython.locals(
        sequence=int64_t, last_sequence=int64_t, epoch=int64_t, delta=int64_t, timestamp=int64_t,
        state=ProducerState, batches=list,
    )
    cpdef note(self, BatchHeader header, int64_t base_offset)

    cpdef ProducerState _add(self, producer_id)

cdef class SegmentEnd:
    cdef public int64_t _bytes_since_index
    cdef public tuple _recent
    cdef public int64_t base_offset
    cdef public object file
    cdef public object first_timestamp
    cdef public int64_t max_timestamp_offset
    cdef public int64_t max_timestamp_value
    cdef public int64_t next_offset
    cdef public int64_t size_bytes
    cdef public int64_t sure_offset
    cdef public int64_t sure_size
    cdef public int64_t sure_timestamp

    @cython.locals(position=int64_t, half=Py_ssize_t)
    cpdef note_batch(self, int64_t last_offset, int64_t timestamp, int64_t size_bytes, int64_t interval_bytes)

    cpdef _add_index_entries(self, int64_t last_offset, int64_t position)

cdef class LogEnd:
    cdef public SegmentEnd _active
    cdef public bint _create_time
    cdef public int64_t appended_bytes
    cdef public int64_t appended_records
    cdef public object config
    cdef public int64_t end_offset
    cdef public object epochs
    cdef public ProducerTable producers
    cdef public int64_t size_bytes

    @cython.locals(base_offset=int64_t, has_producer=bint, repeated=ProducedBatch)
    cpdef Appended append_as_leader(self, batch, BatchHeader header, int64_t leader_epoch, now_ms)

    @cython.locals(
        base_offset=int64_t, last_offset=int64_t, timestamp=int64_t, size_bytes=int64_t, latest_epoch=int64_t,
        active=SegmentEnd,
    )
    cpdef int64_t _append(self, batch, BatchHeader header, int64_t leader_epoch, now_ms) except? -1

    cpdef SegmentEnd _active_for(self, int64_t size_bytes, int64_t last_offset, int64_t timestamp, now_ms)

    cpdef _write(self, SegmentEnd active, batch)

    cpdef _put_back(self, SegmentEnd active, error)
