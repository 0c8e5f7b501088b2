"""Builds the modules that every request goes through with Cython where a C compiler is present.

Without one (or without Cython) the same files run as plain Python, so a failed build is a warning and not an error.
"""

from runpy import run_path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

# Cython's memory views are large structs: passed by value to a function that is not inlined, they cost half the speed.
ALWAYS_INLINE = ("CYTHON_INLINE", "inline __attribute__((always_inline))")

TYPES_OF_PXD = {"annotation_typing": False}  # those of the .pxd file, and no others
UNCHECKED = {"boundscheck": False, "initializedcheck": False, "wraparound": False}

COMPILED = run_path("src/penstock/base/compiled.py")
MODULES = COMPILED["MODULES"]
INCLUDED = [f"src/penstock/{stem}.pxd" for stem in COMPILED["INCLUDED"]]
# They look at the bytes that remain by themselves.
UNCHECKED_MODULES = ("wire/_records", "wire/_keys", "wire/_batch", "columnar/_columns", "columnar/_rows")


def extensions() -> list[Extension]:
    if cythonize is None:
        return []
    built = []
    for stem in MODULES:
        built += cythonize(
            [module(f"src/penstock/{stem}")],
            build_dir="build",
            language_level=3,
            quiet=True,
            compiler_directives=TYPES_OF_PXD | (UNCHECKED if stem in UNCHECKED_MODULES else {}),
        )
    for extension in built:
        extension.optional = True  # set here because cythonize does not pass it on
    return built


def module(stem: str) -> Extension:
    return Extension(
        stem.removeprefix("src/").replace("/", "."),
        [f"{stem}.py"],
        depends=[f"{stem}.pxd", *INCLUDED],
        define_macros=[ALWAYS_INLINE],
        extra_compile_args=["-O3", "-g0"],
    )


setup(ext_modules=extensions())
