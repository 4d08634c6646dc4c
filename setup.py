"""The compiled core: optional extensions. Where they cannot be built, wheelcache runs on its core in Python."""

import logging
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

CORE = Path("wheelcache/core")
IS_CHECKOUT = not Path("PKG-INFO").exists()
"""Whether this is a checkout of git. A source distribution includes the generated C, and needs no Cython."""

logger = logging.getLogger("wheelcache")


def extensions(suffix):
    """Return the extensions, whose sources have ``suffix``."""
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
    """Generate the C of those Cython sources that have changed."""
    from Cython.Build import cythonize

    cythonize(extensions(".pyx"), quiet=True)


class BuildExtensions(build_ext):
    """Builds the extensions, and prints which core the installation has."""

    def run(self):
        if IS_CHECKOUT:
            try:
                generate()
            except ImportError:
                logger.warning("Without Cython, which generates its C, the core of wheelcache is not compiled.")
        super().run()
        is_compiled = all(self.built())
        logger.warning("wheelcache has the %s core.", "compiled" if is_compiled else "Python")

    def built(self):
        """Return whether the file of each extension is there."""
        return [Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions]


class Wheel(bdist_wheel):
    """Builds a wheel, and tags one without extensions ``py3-none-any``.

    Whether there are extensions is known only after the build. If the tag named this platform, installers would prefer
    the wheel to a source distribution, also where there is a compiler.
    """

    def run(self):
        if not self.skip_build:
            self.run_command("build")
            self.skip_build = True
        if not any(self.get_finalized_command("build_ext").built()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


class SourceDistribution(sdist):
    """Includes the generated C."""

    def run(self):
        if IS_CHECKOUT:
            generate()
        super().run()


setup(
    # The C: setuptools would generate it from a .pyx again for every build.
    ext_modules=extensions(".c"),
    cmdclass={"bdist_wheel": Wheel, "build_ext": BuildExtensions, "sdist": SourceDistribution},
)
