# The C types of _real_poll.py, for Cython. The Python file alone says what happens.

cimport cython

cdef double _AWAY_S
cdef double _LOOK_AGAIN_S
cdef int _TRUST_MAX
cdef int _TRY_ONE_IN

cdef class EpollPoll:
    cdef object _loop
    cdef object _epoll
    cdef dict _callbacks
    cdef list _after
    cdef bint _is_reading
    cdef int _trust
    cdef int _untried

    cpdef after_reading(self, callback)
    @cython.locals(now_s=double, back_s=double)
    cpdef _read(self)

    cdef _handle(self, list ready)

    @cython.locals(end_s=double)
    cdef list _look_again(self, double now_s)

    cdef _call(self, callback)
