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
