"""The database of a site: its owner, foreign files in its place, and the failures that it survives."""

import os
import shutil
import socket
import sqlite3
import stat
import time
from contextlib import chdir, closing

import pytest

from tests.full_disk import room_for
from tests.waiting import PATIENCE
from tests.watch.processes import run, start, worker
from tests.watch.published import INTERVAL, counted, look, only
from wheelcache import Cache
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files
from wheelcache.runtime.private_files import locked_file
from wheelcache.watch import site_file
from wheelcache.watch.figures_directory import FORGOTTEN, directory_of, remove_forgotten
from wheelcache.watch.publisher import LATE
from wheelcache.watch.site_file import LOCK, NAME


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


@pytest.mark.parametrize("name", ["no/parent", "a file", "x" * 300, "for all", "a link", "another's"])
def test_a_figures_dir_that_cannot_be_used_is_an_error_that_names_it(tmp_path, name, monkeypatch):
    (tmp_path / "a file").touch()
    (tmp_path / "for all").mkdir(mode=0o755)
    (tmp_path / "another's").mkdir(mode=0o700)
    (tmp_path / "a link").symlink_to(tmp_path / "another's")
    if name == "another's":
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileUnusable, match="figures_dir must be None, or a private directory of this user") as refused:
        Cache(figures_dir=tmp_path / name)
    assert str(tmp_path / name) in str(refused.value)


def test_the_default_directory_is_the_same_for_a_site_and_another_for_others():
    paths = [directory_of(site) for site in ("test one", "test one", "test two", "test \udcff\0\n/../" + "x" * 10_000)]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
    assert {path.parent for path in paths} == {private_files.runtime_directory()}


def test_without_a_directory_for_this_user_alone_there_is_no_default_and_that_is_logged(runtime_parent, caplog):
    runtime_parent.mkdir(mode=0o755)
    assert directory_of("shop") is None
    assert "The figures of the caches are not published, so each worker shows only its own" in caplog.text


@pytest.mark.parametrize(
    ("module", "name", "value", "reason"),
    [
        (site_file, "sqlite3", None, "sqlite3, which this Python does not have"),
        (sqlite3, "sqlite_version_info", (3, 23, 9), "SQLite 3.24 or newer"),
    ],
)
def test_without_a_usable_sqlite_there_is_no_directory_and_it_says_so(
    path, caplog, monkeypatch, module, name, value, reason
):
    monkeypatch.setattr(module, name, value)
    assert directory_of("shop") is None
    assert reason in caplog.text
    with pytest.raises(FileUnusable, match=f"figures_dir must be None, or a private directory .*{reason}"):
        Cache(figures_dir=path)


def test_default_directories_that_nobody_used_for_long_go_unless_somebody_lives_there(runtime_parent, tmp_path):
    names = ["left", "resting", "recent", "strange"]
    directories = {name: directory_of(name) for name in names}
    run("use(make(), 1)", directories["left"])
    (directories["strange"] / "folder").mkdir()
    (elsewhere := tmp_path / "figures-of-mine").mkdir()
    with worker(directories["resting"]):
        for path in (*directories.values(), elsewhere):
            if path != directories["recent"]:
                os.utime(path, (0, time.time() - FORGOTTEN - 1))
        remove_forgotten(directories["resting"])
        assert set(runtime_parent.iterdir()) == {directories[name] for name in ("resting", "recent", "strange")}
        assert only(directories["resting"]).workers == 1
    assert elsewhere.is_dir()


def test_who_publishes_in_a_default_directory_removes_those_that_were_forgotten(runtime_parent, make, clock):
    forgotten = directory_of("forgotten")
    for path in (None, directory_of("shop")):
        os.utime(forgotten, (0, 0))
        assert forgotten.exists()
        cache = make(**({} if path is None else {"figures_dir": path}))
        cache.set("a", 1)
        clock.advance(INTERVAL)
    assert not forgotten.exists()


def test_a_directory_that_is_removed_is_made_again_with_all_that_living_workers_have_counted(
    runtime_parent, make, clock
):
    cache = make(figures_dir=(path := directory_of("shop")))
    cache.set("a", 1)
    cache.get("a")
    clock.advance(INTERVAL)
    site = look(path)
    shutil.rmtree(runtime_parent)
    assert site.caches == []
    cache.get("a")
    clock.advance(INTERVAL)
    assert counted(path) == {"pages": 2}
    assert only(path).workers == 1
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_directory_that_others_may_use_by_now_is_not_published_in(cache, path, clock, caplog):
    path.chmod(0o755)
    clock.advance(INTERVAL)
    assert list(path.glob("*.sqlite3")) == []
    assert "accessible to its owner only" in caplog.text
    path.chmod(0o700)
    clock.advance(INTERVAL)
    assert only(path).workers == 1


# The file.


def foreign(kind):
    def put(path, elsewhere):
        if kind == "a link":
            path.symlink_to(elsewhere)
        elif kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            # The temporary directories of some machines have longer paths than a socket can have.
            with chdir(path.parent), socket.socket(socket.AF_UNIX) as there:
                there.bind(path.name)
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


KINDS = ["nothing", "noise", "half a header", "a link", "a pipe", "a socket", "one of another version", "one for all"]


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
    hits = counted(path)["pages"]
    assert hits >= 8


@pytest.mark.parametrize("table", [None, "counts"])
def test_a_database_or_a_table_that_is_missing_is_made_again(cache, path, clock, caplog, table):
    clock.advance(INTERVAL)
    if table is None:
        database(path).unlink()
    else:
        with closing(sqlite3.connect(database(path), isolation_level=None)) as db:
            db.execute(f"DROP TABLE {table}")
    assert look(path).caches == []
    cache.get("a")
    clock.advance(INTERVAL)
    assert (only(path).stats.puts, only(path).stats.hits) == (1, 1)
    assert len(caplog.messages) == (table is not None)


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


def test_a_reader_waits_for_nobody_for_long_and_says_why(cache, path, clock, monkeypatch):
    monkeypatch.setattr(site_file, "READ_PATIENCE", 0.1)
    clock.advance(INTERVAL)
    with closing(sqlite3.connect(database(path), isolation_level=None)) as stopped:
        stopped.execute("BEGIN EXCLUSIVE")
        with pytest.raises(FileUnusable, match="held it for too long"):
            counted(path)
        stopped.execute("ROLLBACK")
    with locked_file(path / LOCK), pytest.raises(FileUnusable, match="locked by another process"):
        counted(path)


def test_a_reader_rolls_back_what_a_killed_writer_left(path):
    """The next process finds the journal; here it is a reader, as no worker is left."""
    process = start(
        """
        use(make(), 5)
        def die(db):
            db.execute("UPDATE counts SET hits = 99")
            db.execute("CREATE TABLE filler (x)")
            db.execute("PRAGMA cache_spill = 1")
            db.executemany("INSERT INTO filler VALUES (?)", ((b"x" * 4000,) for _ in range(3000)))
            os.kill(os.getpid(), signal.SIGKILL)
        look(path).files[0].write(die)
        """,
        path,
    )
    process.communicate(timeout=PATIENCE)
    assert next(path.glob("*-journal")).stat().st_size > 0
    assert counted(path) == {"pages": 5}


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.deep
def test_whoever_is_killed_at_any_moment_leaves_whole_figures(path, at):
    """Kill workers repeatedly during publications: every committed count is included once."""
    out = run(
        """
        from wheelcache.watch.site_file import SiteFile
        committed = 0
        for number in range(10):
            read, write = os.pipe()
            def child():
                cache = make()
                for _ in range(200):
                    use(cache, 1)
                    os.write(write, b"x")
            pid = os.fork()
            if pid == 0:
                child()
                os._exit(0)
            os.close(write)
            got = 0
            while got < int(sys.argv[2]) + 3 * number:
                got += len(os.read(read, 1))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            while more := os.read(read, 1000):
                got += len(more)
            committed += got
            found = counted(path).get("pages", 0)
            # The last count may have been committed before its process could report it.
            assert committed <= found <= committed + 1, (committed, found)
            committed = found
        print(only(path).workers)
        """,
        path,
        at,
    )
    assert out == ["0"]
