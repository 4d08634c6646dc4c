"""Entries that outlive their process: loaded by the first use, saved now and then and at the exit."""

import asyncio
import operator
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.runtime.background import is_idle
from tests.scripts import FORKING
from tests.waiting import PATIENCE, THREADS, until
from wheelcache import Cache, CacheClosed, ManualClock
from wheelcache.errors import FileUnusable

ROOT = Path(__file__).parents[2]
NOBODY = 65534

PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
from wheelcache import Cache
from wheelcache.persistence.sigterm import exit_on_sigterm
folder = Path(sys.argv[1])

class Hanging:
    def __reduce__(self):
        print("hangs", flush=True)
        time.sleep(1000)

def make(**options):
    return Cache("mine", snapshot_dir=folder, log_interval=None, sample_interval=None, **options)
"""


def start(script, *args):
    return subprocess.Popen(
        [sys.executable, *FORKING, "-c", PRELUDE + textwrap.dedent(script), *map(str, args)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script, *args, status=0, error=""):
    process = start(script, *args)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, out + err
    assert (err == "") if error == "" else (error in err), err
    return out.split()


class Value:
    """Calls a function when it is pickled, and another when it is unpickled."""

    saving = loading = staticmethod(lambda: None)

    def __reduce__(self):
        Value.saving()
        return Value.made, ()

    @staticmethod
    def made():
        Value.loading()
        return "value"


@pytest.fixture(autouse=True)
def quiet_values():
    yield
    Value.saving = Value.loading = staticmethod(lambda: None)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def make(folder):
    made = []

    def one(name="mine", **options):
        defaults = {"clock": ManualClock(), "log_interval": None, "sample_interval": None, "snapshot_dir": folder}
        made.append(Cache(name, **{**defaults, **options}))
        return made[-1]

    yield one
    for cache in made:
        cache.close()


@pytest.fixture
def saved(make):
    """What an earlier process left: a to e."""

    def save(values=None, **options):
        cache = make(**options)
        cache.set_many(values or dict.fromkeys("abcde", 1), None)
        assert cache.keeper.save()
        cache.close()

    return save


def files(folder, suffix=".snapshot"):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


# Loading.

FIRST_USES = {
    "get": lambda cache: cache.get("a") == 1,
    "a miss": lambda cache: cache.get("none") is None,
    "set": lambda cache: cache.set("new", 1),
    "set_many": lambda cache: cache.set_many({"new": 1}) == [],
    "add": lambda cache: not cache.add("a", 2),
    "touch": lambda cache: cache.touch("a"),
    "expires_in": lambda cache: cache.expires_in("a") is None,
    "incr": lambda cache: cache.incr("a") == 2,
    "pop": lambda cache: cache.pop("e") == 1,
    "delete": lambda cache: cache.delete("e"),
    "delete_many": lambda cache: cache.delete_many("e") == 1,
    "delete_group": lambda cache: cache.delete_group("none") == 0,
    "get_many": lambda cache: cache.get_many("ab") == {"a": 1, "b": 1},
    "keys": lambda cache: cache.keys() == list("abcde"),
    "in": lambda cache: "a" in cache,
    "stats": lambda cache: cache.stats().size == 5,
    "take": lambda cache: cache.take("a", lambda: 1 / 0) == 1,
    "atake": lambda cache: asyncio.run(cache.atake("a", lambda: 1 / 0)) == 1,
    "get_or_lease": lambda cache: cache.get_or_lease("a", wait=1) == 1,
    "save": lambda cache: cache.save(cache.keeper.directory / "by hand") == 5,
}


@pytest.mark.parametrize("use", FIRST_USES)
def test_the_first_use_loads_whatever_it_is(make, saved, use):
    saved()
    cache = make()
    assert len(cache) == 0
    assert not cache.is_in_use()
    assert FIRST_USES[use](cache)
    assert cache.is_in_use()
    assert cache.get("b") == 1


NO_USES = {
    "making": lambda cache: None,
    "len": len,
    "repr": repr,
    "decorating": lambda cache: cache.memoize()(lambda: 1),
    "lag": lambda cache: cache.lag,
    "a listener": lambda cache: setattr(cache, "on_removal", print),
    "saving": lambda cache: cache.keeper.save(),
}


@pytest.mark.parametrize("use", NO_USES)
def test_nothing_is_loaded_by_what_asks_for_no_entry(make, saved, folder, use):
    saved()
    clock = ManualClock()
    cache = make(clock=clock)
    NO_USES[use](cache)
    clock.advance(1000)
    assert not cache.is_in_use()
    assert len(cache) == 0
    assert cache.get("a") == 1


def double(x):
    return 2 * x


def test_what_is_memoized_is_loaded_by_the_first_call(make):
    first = make()
    assert first.memoize()(double)(1) == 2
    assert first.keeper.save()
    first.close()
    again = make().memoize()(double)
    assert again(1) == 2
    assert again.cache_stats().calls == 0


def times(factor):
    return lambda x: factor * x


@pytest.mark.parametrize(
    "make_function", [times, lambda factor: partial(operator.mul, factor)], ids=["inner", "partial"]
)
def test_functions_of_one_name_do_not_get_what_others_returned_in_an_earlier_process(make, make_function):
    first = make()
    assert [first.memoize()(make_function(factor))(1) for factor in (2, 3)] == [2, 3]
    assert first.keeper.save()
    first.close()
    other = make()
    assert [other.memoize()(make_function(factor))(1) for factor in (3, 2)] == [3, 2]


def test_nor_do_two_that_have_one_name_by_now(make):
    first = make()
    assert first.memoize()(double)(1) == 2
    assert first.keeper.save()
    first.close()
    other = make()
    for _ in range(2):
        memoized = other.memoize()(double)
    assert memoized(1) == 2
    assert len(other) == 1
    assert memoized.cache_stats().calls == 1


@pytest.mark.parametrize("end", ["clear", "close"])
def test_to_clear_or_close_it_nothing_need_be_loaded_and_nothing_is_later(make, saved, end):
    saved({"a": Value()})
    loads = []
    Value.loading = staticmethod(lambda: loads.append(1))
    cache = make()
    getattr(cache, end)()
    if end == "clear":
        assert cache.get("a") is None
        assert cache.set("a", 2)
        assert cache.keys() == ["a"]
    else:
        with pytest.raises(CacheClosed):
            cache.get("a")
    assert loads == []


def test_what_is_cleared_while_it_is_loaded_is_gone(make, saved):
    saved({"a": 1, "b": Value(), "c": 1})
    cache = make()
    begun, go_on = threading.Event(), threading.Event()
    Value.loading = staticmethod(lambda: (begun.set(), go_on.wait(PATIENCE)))
    loading = threading.Thread(target=cache.get, args=("a",))
    loading.start()
    assert begun.wait(PATIENCE)
    clearing = threading.Thread(target=cache.clear)
    clearing.start()
    go_on.set()
    loading.join(PATIENCE)
    clearing.join(PATIENCE)
    assert cache.keys() == []


def test_threads_that_wait_get_what_is_loaded_and_it_is_loaded_once(make, saved, together):
    saved({"a": Value()})
    loads = []
    Value.loading = staticmethod(lambda: loads.append(time.sleep(0.05)))
    cache = make()
    calls = []
    assert together(lambda number: cache.take("a", lambda: calls.append(1))) == ["value"] * THREADS
    assert (len(loads), calls) == (1, [])


def test_a_value_that_needs_the_very_cache_to_be_loaded_gets_it(make, saved):
    saved({"a": Value(), "b": 1})
    cache = make()
    Value.loading = staticmethod(lambda: (cache.set("c", 1), cache.get("b"), cache.stats(), cache.keys()))
    assert cache.get("a") == "value"
    assert cache.get_many("bc") == {"b": 1, "c": 1}


@pytest.mark.parametrize("key", ["short", "graced"])
def test_nothing_that_expired_while_it_was_loaded_is_returned_to_who_waited(make, key):
    first = make(jitter=0)
    first.set("short", 1, 10)
    first.take("graced", lambda: 1, 10, grace=100)
    first.set("long", 1, 100)
    first.set("slow", Value())
    first.keeper.save()
    clock = ManualClock()
    cache = make(clock=clock)
    Value.loading = staticmethod(lambda: clock.advance(20))
    assert cache.get(key) is None
    assert cache.get("long") == 1


def test_it_may_be_closed_while_it_is_loaded(make, saved):
    saved({"a": Value(), "b": 1})
    cache = make()
    Value.loading = staticmethod(cache.close)
    with pytest.raises(CacheClosed):
        cache.set("c", 1)
    assert len(cache) == 0


def test_a_directory_that_others_may_use_is_an_error_when_the_cache_is_made(make, folder):
    folder.mkdir(mode=0o755)
    with pytest.raises(FileUnusable, match="mode 755"):
        make()


# Forks.


def test_a_preloading_master_loads_nothing_and_its_children_themselves(saved, folder):
    saved()
    assert run(
        """
        cache = make()
        for _ in range(2):
            if os.fork() == 0:
                assert not cache.is_in_use()
                print(cache.get("a"), len(cache), flush=True)
                cache.set("mine", os.getpid())
                assert cache.keeper.save()
                os._exit(0)
            os.wait()
        print(cache.is_in_use())
        """,
        folder,
    ) == ["1", "5", "1", "6", "False"]
    # The second had the number of the first, who was gone.
    assert len(files(folder)) == 1


def test_a_child_of_one_that_is_being_loaded_loads_by_itself(folder):
    script = """
        class Slow:
            def __reduce__(self):
                return made, ()
        loads = 0
        def made():
            global loads
            loads += 1
            if loads == 1:
                begun.set()
                go_on.wait(10)
            return "slow"
        begun, go_on = threading.Event(), threading.Event()
        if sys.argv[2] == "save":
            cache = make()
            cache.set_many({"a": 1, "slow": Slow(), "b": 2})
            assert cache.keeper.save()
            os._exit(0)
        cache = make()
        thread = threading.Thread(target=cache.get, args=("a",))
        thread.start()
        assert begun.wait(10)
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            print(cache.get("slow"), cache.get("b"), cache.set("c", 1), cache.keeper.save(), flush=True)
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        go_on.set()
        thread.join(10)
        print(cache.get("slow"), cache.get("b"), cache.get("c"))
        """
    run(script, folder, "save")
    assert run(script, folder, "load") == ["slow", "2", "True", "True", "0", "slow", "2", "None"]


def test_each_process_has_a_number_and_takes_none_of_who_lives(folder):
    script = """
        cache = make()
        cache.set(str(os.getpid()), 1)
        assert cache.keeper.save()
        if sys.argv[2] == "fork":
            if os.fork() == 0:
                # With a number of its own, and without its parent's.
                cache.set("child", 1)
                assert cache.keeper.save()
        print("saved", flush=True)
        sys.stdin.readline()
        """

    def written():
        """The numbers of the files that were written since the last call."""
        nonlocal before
        now = {name.split(".")[1]: (folder / name).stat().st_ino for name in files(folder)}
        there, before = before, now
        return {number for number, inode in now.items() if there.get(number) != inode}

    before = {}
    processes = [start(script, folder, "stay") for _ in range(4)]
    assert [process.stdout.readline() for process in processes] == ["saved\n"] * 4
    assert written() == {"1", "2", "3", "4"}
    for process in processes:
        process.kill()
        process.communicate(timeout=20)
    forking = start(script, folder, "fork")
    assert [forking.stdout.readline() for _ in range(2)] == ["saved\n"] * 2
    assert written() == {"1", "2"}
    forking.kill()
    forking.wait(20)
    # The child lives, and so does its number, but its parent's is free.
    run(script.replace("sys.stdin.readline()", "os._exit(0)"), folder, "stay")
    assert written() == {"1"}
    for pipe in (forking.stdin, forking.stdout, forking.stderr):
        pipe.close()
    assert len(files(folder)) == 4
    assert len(files(folder, ".lock")) == 4


# Saving now and then.


def test_it_is_saved_every_interval_by_the_pool(make, folder):
    clock = ManualClock()
    cache = make(snapshot_interval=60, clock=clock)
    cache.set("a", Value())
    threads = set()
    Value.saving = staticmethod(lambda: threads.add(threading.current_thread().name))
    clock.advance(59)
    assert files(folder) == []
    clock.advance(1)
    assert until(is_idle)
    assert threads == {"wheelcache-refresh"}
    (name,) = files(folder)
    first = (folder / name).stat()
    assert stat.S_IMODE(first.st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    cache.set("b", 1)
    clock.advance(60)
    assert until(is_idle)
    assert (folder / name).stat().st_ino != first.st_ino
    assert make().get("b") == 1


def test_a_save_that_takes_longer_than_the_interval_takes_one_thread_and_not_one_more_each_time(make):
    clock = ManualClock()
    cache = make(snapshot_interval=60, clock=clock)
    cache.set("a", Value())
    begun, go_on = [], threading.Event()
    Value.saving = staticmethod(lambda: (begun.append(1), go_on.wait(PATIENCE)))
    clock.advance(60)
    assert until(lambda: begun)
    clock.advance(600)
    go_on.set()
    assert until(is_idle)
    assert begun == [1]
    clock.advance(60)
    assert until(is_idle)
    assert begun == [1, 1]


def test_in_a_directory_that_may_not_be_written_it_is_one_warning():
    # Not in a folder of pytest's, which only its own user may enter.
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "kept")
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for each in (parent, folder):
                os.chown(each, NOBODY, NOBODY)
        out = run(
            """
            if os.geteuid() == 0:
                os.setuid(65534)
            cache = make()
            cache.set("a", 1)
            folder.chmod(0o500)
            print(cache.keeper.save(), cache.keeper.save())
            folder.chmod(0o700)
            print(cache.keeper.save())
            cache.close()
            """,
            folder,
            error="cannot be saved",
        )
    assert out == ["False", "False", "True"]


@pytest.mark.deep
def test_whoever_is_killed_at_any_step_of_a_save_leaves_what_can_be_loaded(folder):
    script = """
        cache = make()
        cache.set_many({"a": sys.argv[2], "b": sys.argv[2]})
        left = int(sys.argv[3])
        def dying(function):
            def call(*args, **options):
                global left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)
            return call
        for name in ("open", "write", "fsync", "replace", "fchmod", "listdir", "unlink", "close", "lstat"):
            setattr(os, name, dying(getattr(os, name)))
        cache.keeper.save()
        os._exit(0)
        """
    run(script, folder, "old", 10_000)
    outcomes = []
    for step in range(1, 40):
        process = start(script, folder, "new", step)
        process.communicate(timeout=30)
        (found,) = {tuple(run("print(*make().get_many('ab').values()); os._exit(0)", folder))} - {()}
        assert found in {("old", "old"), ("new", "new")}
        outcomes.append((process.returncode, found[0]))
        if process.returncode == 0:
            break
    assert outcomes[0] == (-signal.SIGKILL, "old")
    assert outcomes[-1] == (0, "new")
    assert len(outcomes) > 8
    run(script, folder, "last", 10_000)
    assert len(files(folder)) == 1
    assert len(files(folder, ".tmp")) == 0


# At the exit.

LEFT = "print(make().get('a')); os._exit(0)"

EXITS = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "SIGTERM": ("exit_on_sigterm(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 143),
    "SIGTERM twice": (
        # The second while it saves.
        """
exit_on_sigterm()
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""",
        143,
    ),
}


@pytest.mark.parametrize("how", EXITS)
def test_who_exits_saves(folder, how):
    script, status = EXITS[how]
    run("cache = make(); cache.set('a', 1)\n" + script, folder, status=status)
    assert run(LEFT, folder) == ["1"]


def test_who_is_killed_loses_an_interval_at_most(folder):
    process = start(
        """
        cache = make(snapshot_interval=0.2, interval=0.05)
        cache.set("a", 1)
        print("set", flush=True)
        time.sleep(60)
        """,
        folder,
    )
    assert process.stdout.readline() == "set\n"
    assert until(lambda: len(files(folder)) == 1)
    process.kill()
    process.communicate(timeout=20)
    assert run(LEFT, folder) == ["1"]


NEVER_DONE = {
    "a value": ("cache.set('b', Hanging())", 0),
    "a thread": (
        """
exit_on_sigterm()
threading.Thread(target=time.sleep, args=(1000,)).start()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(1000)
""",
        143,
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("what", NEVER_DONE)
def test_what_is_never_done_keeps_no_process_from_its_exit_for_longer_than_some_ten_seconds(folder, what):
    script, status = NEVER_DONE[what]
    run("cache = make(); cache.set('a', 1)\n" + script, folder, status=status)
    assert run(LEFT, folder) == ["1" if what == "a thread" else "None"]


def test_sigterm_is_left_to_who_handles_it(folder):
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


def test_a_cache_that_was_never_used_leaves_the_file_as_it_is(folder):
    run("make().set('a', 1)", folder)
    run("make()", folder)
    assert run(LEFT, folder) == ["1"]


def test_a_cache_that_was_never_used_is_not_loaded_at_the_exit(folder):
    script = """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    make(figures_dir=folder.parent / "figures")
    """
    run("make().set('a', 1)", folder)
    assert run(script, folder) == []
    assert run(script.rstrip() + '.get("a")', folder)[0] == "Loaded"


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
    assert run(LEFT, folder) == ["2"]


# Real servers.

APP = "tests.engine.snapshot_app"
SERVERS = {
    "gunicorn sync": ["-m", "gunicorn", "-w", "1", "-b", "127.0.0.1:{port}", f"{APP}:application"],
    "gunicorn gthread": [
        *("-m", "gunicorn", "-k", "gthread", "--threads", "4", "-w", "1", "-b", "127.0.0.1:{port}"),
        f"{APP}:application",
    ],
    "gunicorn preload": ["-m", "gunicorn", "--preload", "-w", "1", "-b", "127.0.0.1:{port}", f"{APP}:application"],
    "uvicorn": ["-m", "uvicorn", "--log-level", "warning", "--port", "{port}", f"{APP}:asgi_application"],
    "waitress": ["-m", "waitress", "--listen", "127.0.0.1:{port}", f"{APP}:application"],
}


@pytest.fixture
def serve(folder, tmp_path):
    running = []

    def one(command):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with (tmp_path / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *(part.format(port=port) for part in command)],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SNAPSHOTS": str(folder)},
                start_new_session=True,
            )
        running.append(process)

        def ask(path):
            with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=15) as response:
                return response.read().decode()

        def is_up():
            try:
                return ask("len") == "0"
            except (URLError, ConnectionError):
                return False

        assert until(is_up, 20), (tmp_path / "log").read_text()
        return process, ask

    yield one
    for process in running:
        if process.poll() is None:
            # The group is the session that was started for this server.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.mark.servers
@pytest.mark.parametrize("server", SERVERS)
def test_after_sigterm_to_a_server_the_entries_are_back_when_it_is_started_again(serve, tmp_path, server):
    process, ask = serve(SERVERS[server])
    ask("set/a/kept")
    process.terminate()
    process.wait(30)
    _, ask = serve(SERVERS[server])
    assert ask("get/a") == "kept", (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()
