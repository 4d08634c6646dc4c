"""A Python that has imported the frameworks, and runs each command in a fork: the imports take a second of a processor.

The module that a command names is executed in the fork, as ``python -m`` does. The modules of the tests that it imports
are, too.
"""

import json
import os
import runpy
import subprocess
import sys
from importlib import import_module

from tests.scripts import ROOT

IMPORTED = [
    *("django.contrib.sessions.middleware", "django.core.asgi", "django.core.management.commands.check"),
    *("django.core.wsgi", "django.shortcuts", "django.views.decorators.cache", "flask.cli", "flask_caching"),
    *("rich.table", "wheelcache.command_line", "wheelcache.django_backend.pages", "wheelcache.flask_backend"),
]


class PreparedPython:
    """``with PreparedPython(folder) as python: done = python("-m", "flask", "routes", NAME="value")``"""

    def __init__(self, folder):
        self._output, self._errors = folder / "output", folder / "errors"

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._output, self._errors],
            cwd=ROOT,
            # Without COLUMNS, which readline adds behind the back of ``os.environ``.
            env={**os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def __call__(self, option, module, *arguments, cwd=ROOT, **variables):
        """Run a command until its end, in the directory ``cwd``. ``variables`` are added to its environment."""
        print(json.dumps([module, arguments, str(cwd), variables]), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        output, errors = self._output.read_text(), self._errors.read_text()
        return subprocess.CompletedProcess([option, module, *arguments], status, output, errors)


def main(output, errors):
    for name in IMPORTED:
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
