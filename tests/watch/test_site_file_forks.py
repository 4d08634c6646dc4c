"""The database of a site under forks, and the descriptors of it."""

import errno

import pytest

from tests.memory import descriptors
from tests.watch.processes import run
from tests.watch.published import INTERVAL, counted, look
from wheelcache.watch.site_file import USE, SiteFile


def test_a_fork_while_another_thread_is_inside_sqlite_leaves_a_child_that_can_use_it(path):
    assert (
        run(
            """
        import sqlite3
        caches = [make(f"cache {number}") for number in range(10)]
        for cache in caches:
            cache.set("a", 1)
        over = threading.Event()

        def publish():
            while not over.is_set():
                caches[0].engine.observed.observer.publication.publisher.publish()
                time.sleep(0.001)

        def read():
            while not over.is_set():
                look(path).caches
                time.sleep(0.001)

        threads = [threading.Thread(target=each) for each in (publish, read)]
        for each in threads:
            each.start()
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                signal.alarm(100)
                with sqlite3.connect(":memory:") as db:
                    db.execute("CREATE TABLE t (x)")
                counted(path)
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
        over.set()
        for each in threads:
            each.join()
        """,
            path,
        )
        == ["0"] * 30
    )


@pytest.mark.parametrize("inside", ["a transaction", "the lock"])
def test_a_signal_handler_that_forks_while_its_thread_uses_sqlite_hangs_neither_parent_nor_child(path, inside):
    """The child continues within the transaction: it must neither commit nor roll back its parent's changes."""
    assert run(
        """
        from wheelcache.watch.site_file import USE
        cache = make()
        use(cache, 5)
        children = []

        def handle(*_):
            children.append(os.fork())
            signal.alarm(100)

        signal.signal(signal.SIGUSR1, handle)

        def change(db):
            db.execute("UPDATE counts SET hits = hits + 100 WHERE kind = 0")
            os.kill(os.getpid(), signal.SIGUSR1)

        try:
            if sys.argv[2] == "the lock":
                with USE.lock:
                    look(path).files[0].write(lambda db: change(db) if not children else None)
            else:
                look(path).files[0].write(change)
        except OSError as error:
            assert children == [0] and "forked" in str(error), error
        if children == [0]:
            cache.set("b", 1)
            cache.get("b")
            clock.advance(3)
            os._exit(0 if USE.is_free() else 1)
        print(os.waitpid(children[0], 0)[1], USE.is_free(), counted(path))
        cache.get("a")
        clock.advance(3)
        print(counted(path))
        """,
        path,
        inside,
    ) == ["0 True {'pages': 106}", "{'pages': 107}"]


@pytest.mark.alone
def test_no_descriptor_stays_open_after_reading_or_is_for_programs_that_are_started(cache, path, clock):
    clock.advance(INTERVAL)
    before = descriptors(f"{path}/")
    for _ in range(10):
        counted(path)
        clock.advance(INTERVAL)
    assert descriptors(f"{path}/") == before
    out = run(
        "import subprocess; print(subprocess.run(['ls', '-l', '/proc/self/fd'], capture_output=True).stdout)", path
    )
    assert "figures" not in "".join(out)


def test_a_missing_directory_is_empty_for_who_reads_and_reading_makes_nothing(path, make):
    make()
    site = look(path)
    assert (site.caches, site.workers("pages"), site.events(10)) == ([], [], [])
    assert list(path.iterdir()) == []


def test_use_is_free_again_after_an_error(path):
    file = SiteFile(path)

    def fail(db):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        file.write(fail)
    assert USE.is_free()
    file.write(lambda db: db.execute("INSERT INTO modes (cache, mode) VALUES (0, 'on')"))
    with pytest.raises(OSError, match="UNIQUE") as failed:
        file.write(lambda db: db.execute("INSERT INTO modes (cache, mode) VALUES (0, 'off')"))
    assert failed.value.errno != errno.ENOENT
    assert file.read(lambda db: db.execute("SELECT mode FROM modes").fetchall(), list) == [("on",)]
