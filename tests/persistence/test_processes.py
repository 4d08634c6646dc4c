"""Caches that outlive their processes: loads after forks, saves at exits and signals, and hanging threads."""

import textwrap

import pytest

from tests import scripts

PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
from wheelcache import Cache
from wheelcache.runtime.exit_save import exit_save
from wheelcache.runtime.exit_signals import exit_on_sigterm
folder = Path(sys.argv[1])

class Hanging:
    def __reduce__(self):
        time.sleep(1000)

def make(**options):
    return Cache("mine", snapshot_dir=folder, log_interval=None, sample_interval=None, **options)
"""


def start(script, *args):
    return scripts.start(PRELUDE + textwrap.dedent(script), *args)


def run(script, *args, status=0):
    return scripts.run(PRELUDE + textwrap.dedent(script), *args, status=status).split()


def files(folder, suffix=".snapshot"):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


def left(folder):
    """Return the entries that the next process finds."""
    return run("print(make().get('a')); os._exit(0)", folder)


# Forks.


def test_a_preloading_master_loads_nothing_and_its_children_themselves(folder):
    run("make().set_many(dict.fromkeys('abcde', 1))", folder)
    assert run(
        """
        cache = make()
        for _ in range(2):
            if os.fork() == 0:
                assert not cache.keeper.save()
                print(cache.get("a"), len(cache), flush=True)
                cache.set("mine", os.getpid())
                assert cache.keeper.save()
                os._exit(0)
            os.wait()
        print(bool(cache.keeper.save()))
        """,
        folder,
    ) == ["1", "5", "1", "6", "False"]
    # Each had the number of the previous process, which had ended.
    assert len(files(folder)) == 1


def test_each_process_has_a_number_that_no_other_living_one_has(folder):
    script = """
        cache = make()
        cache.set(str(os.getpid()), 1)
        assert cache.keeper.save()
        if sys.argv[2] == "fork" and os.fork() == 0:
            # With a number of its own, and without its parent's.
            cache.set("child", 1)
            assert cache.keeper.save()
        print("saved", flush=True)
        sys.stdin.readline()
        os._exit(0)
        """

    def written():
        """Return the numbers of the files that were written since the last call."""
        nonlocal before
        now = {name.split(".")[1]: (folder / name).stat().st_ino for name in files(folder)}
        there, before = before, now
        return {number for number, inode in now.items() if there.get(number) != inode}

    before = {}
    processes = [start(script, folder, "stay") for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["saved\n"] * 2
    assert written() == {"1", "2"}
    for process in processes:
        process.kill()
        process.communicate(timeout=250)
    forking = start(script, folder, "fork")
    assert [forking.stdout.readline() for _ in range(2)] == ["saved\n"] * 2
    assert written() == {"1", "2"}
    forking.kill()
    forking.wait(60)
    # The child lives and keeps its number, but the number of its parent is free.
    last = start(script, folder, "stay")
    assert last.communicate("\n", 20)[0] == "saved\n"
    assert written() == {"1"}
    for pipe in (forking.stdin, forking.stdout, forking.stderr):
        pipe.close()
    assert len(files(folder)) == len(files(folder, ".lock")) == 2


def test_a_child_of_a_fork_that_exits_saves_its_own(folder):
    run(
        """
        cache = make()
        cache.set("a", 1)
        assert cache.keeper.save()
        if os.fork() == 0:
            cache.set("a", 2)
            sys.exit()
        os.wait()
        os._exit(0)
        """,
        folder,
    )
    assert len(files(folder)) == 2
    assert left(folder) == ["2"]


# At the exit.

KILL = "os.kill(os.getpid(), signal.SIGTERM)"
EXITS = {
    "the end": ("", 0, "1"),
    "sys.exit": ("sys.exit(3)", 3, "1"),
    "SIGTERM": (f"exit_on_sigterm(); {KILL}; time.sleep(60)", 143, "1"),
    # The second while it saves.
    "SIGTERM twice": (
        f"exit_on_sigterm(); threading.Timer(0.05, lambda: {KILL}).start(); {KILL}; time.sleep(60)",
        143,
        "1",
    ),
    "SIGTERM, with a thread that never ends": (
        f"exit_on_sigterm(); exit_save.seconds = 0.5; threading.Thread(target=time.sleep, args=[60]).start(); {KILL}",
        143,
        "1",
    ),
    "the end, with a value that is never pickled": ("exit_save.seconds = 0.5; cache.set('b', Hanging())", 0, "None"),
}


@pytest.mark.parametrize("how", EXITS)
def test_a_process_that_exits_saves_in_bounded_time(folder, how):
    script, status, found = EXITS[how]
    run("cache = make(); cache.set('a', 1)\n" + script, folder, status=status)
    assert left(folder) == [found]


def test_sigterm_is_left_to_a_process_that_handles_or_ignores_it(folder):
    assert run(
        """
        signal.signal(signal.SIGTERM, lambda *args: print("mine"))
        exit_on_sigterm()
        os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        exit_on_sigterm()
        os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        thread = threading.Thread(target=exit_on_sigterm)
        thread.start()
        thread.join()
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        """,
        folder,
    ) == ["mine", "True"]


def test_a_cache_that_was_never_used_is_not_loaded_at_the_exit_and_leaves_its_file(folder):
    script = """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    make(figures_dir=folder.parent / "figures")
    """
    run("make().set('a', 1)", folder)
    assert "Loaded" not in run(script, folder)
    assert "Loaded" in run(script.rstrip() + '.get("a")', folder)
