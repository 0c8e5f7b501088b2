# The C types of _real_poll.py, for Cython. The Python file alone says what happens.

cdef class EpollPoll:
    cdef object _loop
    cdef object _epoll
    cdef dict _callbacks
    cdef list _after
    cdef bint _is_reading

    cpdef after_reading(self, callback)
    cpdef _read(self)
    cdef _call(self, callback)
