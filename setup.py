"""Builds the hot record loops with Cython where a C compiler is present; without one the same file runs as plain Python."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize(
        [Extension("penstock.wire._records", ["src/penstock/wire/_records.py"], optional=True)],
        language_level=3,
        quiet=True,
    )

setup(ext_modules=extensions)
