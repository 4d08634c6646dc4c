"""Threads that import parts of the package for the first time, as the two threads of Django's ``runserver`` do."""

import pytest

from tests.scripts import run

SCRIPT = """
import sys, threading
from _frozen_importlib import _blocking_on
from importlib import import_module
from importlib.machinery import SourceFileLoader
from tests.waiting import join, until

package, module = sys.argv[1:]
other = threading.Thread(target=import_module, args=[module])

def create_after_the_other_has_begun(loader, spec):
    # This thread has the lock of the package. The other one gets that of the module, and waits for that of the package.
    if spec.name == package and threading.current_thread() is not other:
        other.start()
        until(lambda: _blocking_on.get(other.ident))

SourceFileLoader.create_module = create_after_the_other_has_begun
import_module(package)
join(other)
print(module in sys.modules)
"""


@pytest.mark.parametrize("module", ["wheelcache.pages.keys", "wheelcache.timers.timer_wheel"])
def test_one_thread_imports_a_package_and_another_one_a_module_of_it(module):
    """If the package needed the module, Python would raise "deadlock detected" in one of the threads."""
    assert run(SCRIPT, module.rpartition(".")[0], module) == "True\n"
