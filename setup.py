"""The compiled core: optional extensions. Where they cannot be built, wheelcache runs on its core in Python."""

import logging
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

CORE = Path("wheelcache/core")
IS_CHECKOUT = not Path("PKG-INFO").exists()
"""What git has. A source distribution has the generated C as well, and needs no Cython."""

logger = logging.getLogger("wheelcache")


def extensions(suffix):
    """Of sources with ``suffix``."""
    return [
        Extension(
            f"wheelcache.core.{each.stem}",
            [str(each.with_suffix(suffix))],
            depends=[*map(str, CORE.glob("*.pxi"))],
            extra_compile_args=["-O3", "-g0"],
            optional=True,
        )
        for each in sorted(CORE.glob("*.pyx"))
    ]


def generate():
    """Have Cython write the C where its sources are newer."""
    from Cython.Build import cythonize

    cythonize(extensions(".pyx"), quiet=True)


class BuildExtensions(build_ext):
    """Says once which core the installation has."""

    def run(self):
        if IS_CHECKOUT:
            try:
                generate()
            except ImportError:
                logger.warning("Without Cython, which generates its C, the core of wheelcache is not compiled.")
        super().run()
        is_compiled = all(Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions)
        logger.warning("wheelcache has the %s core.", "compiled" if is_compiled else "Python")


class SourceDistribution(sdist):
    """With the generated C."""

    def run(self):
        if IS_CHECKOUT:
            generate()
        super().run()


setup(
    # The C, and not the .pyx, which setuptools would have compiled anew each time.
    ext_modules=extensions(".c"),
    cmdclass={"build_ext": BuildExtensions, "sdist": SourceDistribution},
)
