# What _calls.py does, for modules that are compiled. Nothing is built from this file itself.
#
# Sockets here never block, so only a large copy lets other threads of Python run meanwhile; a write to a file may wait.

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv" (int fd, void *buffer, size_t size, int flags)
    ssize_t c_send "send" (int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL

cdef extern from "unistd.h" nogil:
    ssize_t c_pwrite "pwrite" (int fd, const void *data, size_t size, int64_t offset)

cdef enum:
    LARGE_COPY_BYTES = 128 * 1024

cdef inline Py_ssize_t receive(object connected, int fd, object buffer) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if view.len == 0:  # as Python's own
            return 0
        while True:
            if view.len > LARGE_COPY_BYTES:
                with nogil:
                    count = c_recv(fd, view.buf, view.len, 0)
            else:
                count = c_recv(fd, view.buf, view.len, 0)
            if count >= 0:
                return count
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
    finally:
        PyBuffer_Release(&view)

cdef inline Py_ssize_t send(object connected, int fd, object data) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            if view.len > LARGE_COPY_BYTES:
                with nogil:
                    count = c_send(fd, view.buf, view.len, MSG_NOSIGNAL)
            else:
                count = c_send(fd, view.buf, view.len, MSG_NOSIGNAL)
            if count >= 0:
                return count
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
    finally:
        PyBuffer_Release(&view)

cdef inline Py_ssize_t write_at(int fd, object data, int64_t offset) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            with nogil:
                count = c_pwrite(fd, view.buf, view.len, offset)
            if count >= 0:
                return count
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
    finally:
        PyBuffer_Release(&view)
