"""The compiled core: an optional extension. Where it cannot be built, wheelcache runs on its core in Python."""

import logging
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

SOURCE = Path("wheelcache/core/_core.pyx")
GENERATED = SOURCE.with_suffix(".c")
IS_CHECKOUT = not Path("PKG-INFO").exists()
"""What git has. A source distribution has the generated C as well, and needs no Cython."""

logger = logging.getLogger("wheelcache")


def generate():
    """Have Cython write the C, if the sources of the core are newer."""
    from Cython.Build import cythonize

    cythonize([Extension("wheelcache.core._core", [str(SOURCE)])], quiet=True)


class BuildCore(build_ext):
    """Says once which core the installation has."""

    def run(self):
        if IS_CHECKOUT:
            try:
                generate()
            except ImportError:
                logger.warning("Cython is not installed: its C is needed to compile the core of wheelcache.")
        super().run()
        built = all(Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions)
        logger.warning("wheelcache has its %s core.", "compiled" if built else "Python")


class SourceDistribution(sdist):
    """With the generated C."""

    def run(self):
        if IS_CHECKOUT:
            generate()
        super().run()


setup(
    ext_modules=[
        # setuptools would have the C generated from a .pyx, also where that is older.
        Extension("wheelcache.core._core", [str(GENERATED)], optional=True, extra_compile_args=["-O3"])
    ],
    cmdclass={"build_ext": BuildCore, "sdist": SourceDistribution},
)
