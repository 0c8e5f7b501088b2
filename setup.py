"""Builds the hot record loops with Cython where a C compiler is present.

Without one (or without Cython) the same file runs as plain Python, so a failed build is a warning and not an error.
"""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

# Cython's memory views are large structs: passed by value to a function that is not inlined, they cost half the speed.
ALWAYS_INLINE = ("CYTHON_INLINE", "inline __attribute__((always_inline))")

# The loops look at the bytes that remain by themselves, and their types are those of the .pxd file.
DIRECTIVES = {"annotation_typing": False, "boundscheck": False, "initializedcheck": False, "wraparound": False}


def extensions() -> list[Extension]:
    if cythonize is None:
        return []
    record_loops = Extension(
        "penstock.wire._records",
        ["src/penstock/wire/_records.py"],
        depends=["src/penstock/wire/_records.pxd"],
        define_macros=[ALWAYS_INLINE],
        extra_compile_args=["-O3", "-g0"],
    )
    built = cythonize([record_loops], build_dir="build", language_level=3, quiet=True, compiler_directives=DIRECTIVES)
    for extension in built:
        extension.optional = True  # set here because cythonize does not pass it on
    return built


setup(ext_modules=extensions())
