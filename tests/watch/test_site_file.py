"""The database of a site: its owner, foreign files in its place, and the failures that it survives."""

import os
import sqlite3
import stat
import time
from contextlib import closing

import pytest

from tests.full_disk import room_for
from tests.waiting import PATIENCE
from tests.watch.processes import worker
from tests.watch.published import INTERVAL, counted, look, only
from wheelcache import Cache
from wheelcache.runtime import private_files
from wheelcache.watch.figures_directory import directory_of
from wheelcache.watch.publisher import LATE
from wheelcache.watch.site_file import NAME


def database(path):
    (found,) = path.glob("*.sqlite3")
    return found


# The directory.


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_directory_and_all_in_it_are_its_owners_only_whatever_the_umask(make, path, clock, mask):
    before = os.umask(mask)
    try:
        cache = make()
        cache.set("a", 1)
        clock.advance(INTERVAL)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    modes = {each.suffix: stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()}
    assert modes == dict.fromkeys((".sqlite3", ".sqlite3-journal", ".alive", ""), 0o600)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(b"/tmp/x", TypeError), (1, TypeError), ("", ValueError), ("figures", ValueError), ("/tmp/a\0b", ValueError)],
)
def test_a_wrong_figures_dir_is_an_error_that_names_it_and_what_it_takes_and_got(wrong, error):
    with pytest.raises(error, match="figures_dir must be an absolute path, or None, not ") as refused:
        Cache(figures_dir=wrong)
    assert repr(wrong) in str(refused.value)


def test_the_default_directory_is_the_same_for_a_site_and_another_for_others():
    paths = [directory_of(site) for site in ("test one", "test one", "test two", "test \udcff\0\n/../" + "x" * 10_000)]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
    assert {path.parent for path in paths} == {private_files.runtime_directory()}


def test_without_a_directory_for_this_user_alone_there_is_no_default_and_that_is_logged(runtime_parent, caplog):
    runtime_parent.mkdir(mode=0o755)
    assert directory_of("shop") is None
    assert "The figures of the caches are not published, so each worker shows only its own" in caplog.text


def test_who_publishes_in_a_default_directory_removes_those_that_were_forgotten(runtime_parent, make, clock):
    forgotten = directory_of("forgotten")
    for path in (None, directory_of("shop")):
        os.utime(forgotten, (0, 0))
        assert forgotten.exists()
        cache = make(**({} if path is None else {"figures_dir": path}))
        cache.set("a", 1)
        clock.advance(INTERVAL)
    assert not forgotten.exists()


def test_a_directory_that_others_may_use_by_now_is_not_published_in(cache, path, clock, caplog):
    path.chmod(0o755)
    clock.advance(INTERVAL)
    assert list(path.glob("*.sqlite3")) == []
    assert "accessible to its owner only" in caplog.text
    path.chmod(0o700)
    clock.advance(INTERVAL)
    assert only(path).workers == 1


def test_who_publishes_removes_what_other_processes_and_versions_left_long_ago(cache, path, clock):
    ages = {
        "figures-00000001.sqlite3": 3600,
        "figures-00000002.sqlite3": 90_000,
        "000000000001.alive": 30,
        "000000000002.alive": 90,
        "000000000003.new": 30,
        "000000000004.new": 90,
        "notes": 900_000,
    }
    for name, age in ages.items():
        (path / name).touch()
        os.utime(path / name, (time.time() - age,) * 2)
    clock.advance(INTERVAL)
    kept = {"figures-00000001.sqlite3", "000000000001.alive", "000000000003.new", "notes"}
    assert ages.keys() & {each.name for each in path.iterdir()} == kept


# The file.


def foreign(kind):
    def put(path, elsewhere):
        if kind == "a link":
            path.symlink_to(elsewhere)
        elif kind == "a pipe":
            os.mkfifo(path)
        elif kind == "one of another version":
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("CREATE TABLE caches (colour TEXT)")
                db.execute("PRAGMA user_version = 7")
        elif kind == "one for all":
            path.touch(mode=0o666)
            path.chmod(0o666)
        else:
            path.write_bytes({"nothing": b"", "noise": os.urandom(50_000), "half a header": b"SQLite format 3\0"}[kind])
            path.chmod(0o600)

    return put


KINDS = ["nothing", "noise", "half a header", "a link", "a pipe", "one of another version", "one for all"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
def test_what_is_no_database_of_ours_is_replaced_and_not_followed_and_hinders_no_reader(
    cache, path, clock, tmp_path, kind, caplog
):
    (elsewhere := tmp_path / "elsewhere").write_text("not to be touched")
    foreign(kind)(path / NAME, elsewhere)
    assert look(path).caches == []
    clock.advance(INTERVAL)
    assert only(path).stats.size == 1
    assert (path / NAME).lstat().st_mode == stat.S_IFREG | 0o600
    assert elsewhere.read_text() == "not to be touched"
    # Neither later publications nor other workers report it again.
    clock.advance(INTERVAL)
    with worker(path, hits=1):
        pass
    (line,) = caplog.messages
    assert line.startswith(f"The database of the figures {path / NAME} was damaged (")


def test_a_damaged_database_is_replaced_and_has_all_that_living_workers_have_counted(cache, path, clock):
    for _ in range(5):
        cache.get("a")
    clock.advance(INTERVAL)
    with worker(path, hits=7):
        for at in (0, 100, 4096 + 8):
            with database(path).open("r+b") as file:
                file.seek(at)
                file.write(b"\xff" * 3000)
            look(path).caches  # noqa: B018  # raises nothing
            cache.get("a")
            clock.advance(INTERVAL)
    stats = only(path).stats
    assert sum(each.hits for each in stats.groups.values()) == stats.hits >= 8


def test_on_a_full_disk_nothing_is_published_and_it_is_logged_once_and_comes_later(cache, path, clock, caplog):
    clock.advance(INTERVAL)
    for _ in range(2):
        with room_for(100):
            for _ in range(5):
                cache.get("a")
                clock.advance(INTERVAL)
        assert counted(path)["pages"] in (0, 5)
        clock.advance(INTERVAL)
    assert counted(path) == {"pages": 10}
    # Other tests may have left caches in this process.
    (first, second) = [each.getMessage() for each in caplog.records if "'pages'" in each.getMessage()]
    assert first == second
    assert first.startswith("The figures of the cache 'pages' cannot be published: ")


def test_who_is_stopped_in_the_middle_of_a_publication_delays_the_others_by_a_moment_only(cache, path, clock, caplog):
    clock.advance(INTERVAL)
    with closing(sqlite3.connect(database(path), isolation_level=None)) as stopped:
        stopped.execute("BEGIN IMMEDIATE")
        before = time.monotonic()
        cache.get("a")
        clock.advance(INTERVAL)
        assert counted(path) == {"pages": 0}
        assert caplog.text == ""
        for _ in range(LATE - 1):
            clock.advance(INTERVAL)
        assert "held it for too long" in caplog.text
        assert time.monotonic() - before < PATIENCE
        stopped.execute("ROLLBACK")
        clock.advance(INTERVAL)
        assert counted(path) == {"pages": 1}
        # A publication that succeeds begins a new count of those that are late.
        caplog.clear()
        stopped.execute("BEGIN IMMEDIATE")
        for _ in range(LATE - 1):
            clock.advance(INTERVAL)
        assert caplog.text == ""
