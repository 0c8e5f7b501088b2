"""What a compiled module says about the interpreter's lock, for Python without Cython: it stays where it is."""

from __future__ import annotations

from contextlib import nullcontext

nogil = nullcontext()
gil = nullcontext()
