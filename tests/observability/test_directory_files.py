"""The files in the directory of figures: whose they are, and what else may lie there."""

import fcntl
import json
import os
import socket
import stat
import time
from functools import partial

import pytest

from tests.observability.published import EXITED, LOCK, FiguresDirectory, dead, exited_workers, figures, only
from wheelcache.errors import FileUnusable
from wheelcache.observability.figures_directory import FORGOTTEN, RESET, directory_of, remove_forgotten
from wheelcache.observability.worker_requests import CLEAR, REQUESTS, RequestBox
from wheelcache.observability.worker_stats import Resets
from wheelcache.runtime import private_files


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_directory_and_all_in_it_are_its_owners_only_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        directory = FiguresDirectory(tmp_path / "figures")
        dead(directory)
        directory.retire_the_dead()
        file = directory.publish(figures("2-b"))
        directory.reset(directory.read())
        RequestBox(directory.path).ask(CLEAR, "pages")
    finally:
        os.umask(before)
    os.close(file)
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.path.iterdir()}
    assert found == dict.fromkeys(("2-b.worker", EXITED, RESET, REQUESTS, LOCK), 0o600)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_may_use_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(FileUnusable, match="for its owner only"):
        FiguresDirectory(tmp_path)


def test_a_link_to_a_directory_and_a_file_in_its_place_and_one_without_parent_are_refused(tmp_path, directory):
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(directory.path)
    file.touch()
    for path in (link, file, tmp_path / "no" / "parent"):
        with pytest.raises(FileUnusable, match=str(path)):
            FiguresDirectory(path)


def test_a_directory_of_another_user_is_refused(directory, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileUnusable, match="must belong to the user"):
        FiguresDirectory(directory.path)


def test_the_default_directory_is_the_same_for_a_site_and_another_for_others():
    paths = [directory_of(site) for site in ("test one", "test one", "test two", "test \udcff\0\n/../" + "x" * 10_000)]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
    for path in set(paths):
        assert path.parent == private_files.runtime_directory()
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        path.rmdir()


def test_without_a_directory_for_this_user_alone_there_is_no_default_and_that_is_logged(runtime_parent, caplog):
    runtime_parent.mkdir(mode=0o755)
    assert directory_of("shop") is None
    assert "The figures of the caches are not published" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\0",
        b"[]",
        b'{"version": 1}',
        b'{"version": 2, "stats": {}}',
        b'{"at": Infinity, "caches": {}}',
        b'{"at": null, "caches": {"pages": null, "other": {"at": 1, "total": {}, "workers": 3}}}',
        b'{"version": 1, "stats": {"hits": "x", "load_buckets": []}, "samples": []}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda content: str(content[:20]),
)
@pytest.mark.parametrize("lives", [True, False])
def test_what_cannot_be_read_hinders_nobody(directory, content, lives):
    good = directory.publish(figures())
    foreign = directory.path / "x.worker"
    foreign.write_bytes(content)
    for name in (EXITED, RESET, REQUESTS):
        (directory.path / name).write_bytes(content)
    dead(directory, "2-b", hits=1)
    with open(foreign) as file:
        if lives:
            fcntl.flock(file, fcntl.LOCK_EX)
        assert (only(directory).stats.hits, only(directory).exited_workers.hits) == (10, 1)
        assert directory.resets() == Resets()
        assert RequestBox(directory.path).last("pages") == {}
        directory.retire_the_dead()
        assert (only(directory).stats.hits, only(directory).exited_workers.hits) == (10, 1)
        assert foreign.exists() == lives
    RequestBox(directory.path).ask(CLEAR, "pages")
    assert CLEAR in RequestBox(directory.path).last("pages")
    directory.reset(directory.read())
    assert directory.resets().caches["pages"].workers["1-a"].hits == 10
    os.close(good)


def test_counts_of_exited_workers_by_a_newer_version_are_left_out_and_stop_nobody(directory):
    (directory.path / EXITED).write_text(
        json.dumps({"caches": {"new": {"colour": 1, "load_buckets": []}, "bad": None, "pages": {"hits": 1}}})
    )
    dead(directory)
    assert exited_workers(directory) == {"pages": 10}


def test_what_is_no_file_hinders_nobody(directory, tmp_path):
    """Links lead nowhere, and no reader waits for the other end of a pipe."""
    (tmp_path / "elsewhere").write_text("not to be touched")
    (directory.path / "1-link.worker").symlink_to(tmp_path / "elsewhere")
    (directory.path / "2-dangling.worker").symlink_to(tmp_path / "nowhere")
    (directory.path / "3-directory.worker").mkdir()
    os.mkfifo(directory.path / "4-pipe.worker")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(directory.path / "5-socket.worker"))
    (directory.path / ".directory").mkdir()
    os.utime(directory.path / ".directory", (1, 1))
    before = set(os.listdir(directory.path))
    dead(directory, "9-x")
    for _ in range(2):
        assert exited_workers(directory) == {"pages": 10}
        directory.retire_the_dead()
    assert set(os.listdir(directory.path)) == before | {EXITED, LOCK}
    assert (tmp_path / "elsewhere").read_text() == "not to be touched"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", [LOCK, f".1-a.worker.{os.getpid()}"], ids=["the lock", "what is being written"])
def test_nothing_is_written_through_a_link(directory, tmp_path, name):
    (tmp_path / "elsewhere").write_text("not to be touched")
    (directory.path / name).symlink_to(tmp_path / "elsewhere")
    step = (
        partial(RequestBox(directory.path).ask, CLEAR, "pages")
        if name == LOCK
        else partial(directory.publish, figures())
    )
    with pytest.raises((OSError, FileUnusable)):
        step()
    assert (tmp_path / "elsewhere").read_text() == "not to be touched"


@pytest.mark.parametrize("name", ["1-a.worker", EXITED])
def test_a_link_in_the_place_of_a_file_is_replaced(directory, tmp_path, name):
    (tmp_path / "elsewhere").write_text("not to be touched")
    (directory.path / name).symlink_to(tmp_path / "elsewhere")
    dead(directory)
    for _ in range(2):
        assert exited_workers(directory) == {"pages": 10}
        directory.retire_the_dead()
    assert (tmp_path / "elsewhere").read_text() == "not to be touched"
    assert not (directory.path / EXITED).is_symlink()


def test_leftovers_go_when_they_are_a_minute_old(directory):
    old, young = (directory.path / f".{name}.worker.1" for name in ("old", "young"))
    for path in (old, young):
        path.touch()
    os.utime(old, (time.time() - 61,) * 2)
    dead(directory)
    directory.retire_the_dead()
    assert {path.name for path in directory.path.iterdir()} == {young.name, EXITED, LOCK}


def test_a_directory_that_is_gone_is_empty_for_who_reads_and_an_error_for_who_publishes(directory):
    directory.path.rmdir()
    assert directory.read() == []
    with pytest.raises(FileNotFoundError):
        directory.publish(figures())
    directory.make_again()
    os.close(directory.publish(figures()))


def test_a_default_directory_is_made_again_with_its_parent(runtime_parent):
    directory = FiguresDirectory(directory_of("shop"))
    directory.path.rmdir()
    directory.path.parent.rmdir()
    directory.make_again()
    assert stat.S_IMODE(directory.path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


def test_default_directories_that_nobody_used_for_long_go_unless_somebody_lives_there(runtime_parent, tmp_path):
    names = ["left", "stopped", "resting", "recent", "strange"]
    directories = {name: FiguresDirectory(directory_of(name)) for name in names}
    os.close(directories["stopped"].publish(figures()))
    directories["stopped"].retire_the_dead()
    os.close(directories["stopped"].publish(figures("2-b")))
    living = directories["resting"].publish(figures())
    (directories["strange"].path / "folder").mkdir()
    (elsewhere := tmp_path / "figures-of-mine").mkdir()
    for path in (*(each.path for each in directories.values()), elsewhere):
        if path != directories["recent"].path:
            os.utime(path, (0, time.time() - FORGOTTEN - 1))
    remove_forgotten()
    found = set(runtime_parent.iterdir())
    os.close(living)
    assert found == {directories[name].path for name in ("resting", "recent", "strange")}
    assert len(list(directories["resting"].path.glob("*.worker"))) == 1
    assert elsewhere.is_dir()
