"""A Python that has imported the frameworks, and runs each command in a fork: the imports take a second of a processor.

The module that a command names is executed in the fork, as ``python -m`` does. The modules of the tests that it imports
are, too.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from select import select

from tests.scripts import ROOT

FRAMEWORKS = [
    *("django.contrib.sessions.middleware", "django.core.asgi", "django.core.management.commands.check"),
    *("django.core.wsgi", "django.shortcuts", "django.views.decorators.cache", "flask.cli", "flask_caching"),
    "rich.table",
]
PACKAGE = ["wheelcache.watch.command_line", "wheelcache.pages.django_pages", "wheelcache.flask_backend"]

PATIENCE = 250
"""Seconds that a command may take."""


class PreparedPython:
    """``with PreparedPython(folder) as python: done = python("-m", "flask", "routes", NAME="value")``

    Args:
        folder: for the output of the commands.
        imported: the names of the imported modules.
    """

    def __init__(self, folder, imported=(*FRAMEWORKS, *PACKAGE)):
        self._output, self._errors = folder / "output", folder / "errors"
        self._imported = imported

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._output, self._errors, *self._imported],
            # A group of its own, with the commands and the servers that they start.
            start_new_session=True,
            cwd=ROOT,
            # Without COLUMNS, which readline adds behind the back of ``os.environ``.
            env={**os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def __call__(self, option, module, *arguments, cwd=ROOT, **variables):
        """Run a command until its end, in the directory ``cwd``. ``variables`` are added to its environment."""
        print(json.dumps([module, arguments, str(cwd), variables]), file=self._process.stdin, flush=True)
        if not select([self._process.stdout], [], [], PATIENCE)[0]:
            # The next command would receive the result of this one.
            self.__exit__()
            self.__enter__()
            raise AssertionError(f"{module} {arguments} has not ended within {PATIENCE} s\n{self._errors.read_text()}")
        status = int(self._process.stdout.readline())
        output, errors = self._output.read_text(), self._errors.read_text()
        return subprocess.CompletedProcess([option, module, *arguments], status, output, errors)


def main(output, errors, *imported):
    for name in imported:
        import_module(name)
    for line in sys.stdin:
        module, arguments, cwd, variables = json.loads(line)
        pid = os.fork()
        if pid == 0:
            for path, number in ((os.devnull, 0), (output, 1), (errors, 2)):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
            os.chdir(cwd)
            sys.path.insert(0, cwd)
            os.environ.update(variables)
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
