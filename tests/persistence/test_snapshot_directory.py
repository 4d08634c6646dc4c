"""A directory of snapshots that another user could replace is refused at the start, at each load and at each save."""

import grp
import os
import pwd

import pytest

from tests.persistence.calling import Calling
from tests.persistence.snapshot_files import NOBODY
from wheelcache import Cache, ManualClock
from wheelcache.errors import FileUnusable


@pytest.fixture
def site(tmp_path):
    """Return the parent of the directory of snapshots, which other users can read."""
    path = tmp_path / "site"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def make(site, closed):
    def one(directory=None):
        directory = site / "cache" if directory is None else directory
        return closed(
            Cache("mine", snapshot_dir=directory, clock=ManualClock(), log_interval=None, sample_interval=None)
        )

    return one


def save(make, directory=None, value=1):
    cache = make(directory)
    cache.set("a", value)
    assert cache.keeper.save()
    cache.close()


def test_a_directory_that_another_user_has_replaced_is_not_loaded_from_or_saved_to(make, site, tmp_path, warnings):
    """Another user can write to ``site``, and puts a link there to files of this user, such as uploads."""
    unpickled = []
    Calling.loading = staticmethod(lambda: unpickled.append(1))
    save(make)
    cache = make()
    uploads = tmp_path / "uploads"
    save(make, uploads, Calling())
    before = {path.name: path.stat().st_mtime_ns for path in uploads.iterdir()}
    (site / "cache").rename(site / "old")
    (site / "cache").symlink_to(uploads)
    assert cache.get("a") is None
    assert unpickled == []
    cache.set("a", 2)
    assert not any(cache.keeper.save() for _ in range(3))
    assert {path.name: path.stat().st_mtime_ns for path in uploads.iterdir()} == before
    of_load, _of_saves = warnings()
    assert f"{site / 'cache'}" in of_load
    assert "'mine'" in of_load


@pytest.mark.parametrize("directory", ["cache", "deeper/cache"])
def test_a_parent_that_all_may_write_is_refused_at_the_start(make, site, directory):
    (site / "deeper").mkdir(mode=0o700)
    site.chmod(0o777)
    with pytest.raises(FileUnusable, match="snapshot_dir") as refused:
        make(site / directory)
    assert str(site) in str(refused.value)
    assert "777" in str(refused.value)
    assert not (site / directory).exists()


@pytest.mark.parametrize("which", ["site", "site/cache"])
def test_and_at_every_load_and_at_every_save_until_it_is_mended(make, site, tmp_path, warnings, which):
    path = tmp_path / which
    save(make)
    cache = make()
    before = {path.name: path.stat().st_ino for path in (site / "cache").iterdir()}
    mode = path.stat().st_mode
    path.chmod(0o777)
    assert cache.get("a") is None
    cache.set("a", 2)
    assert not any(cache.keeper.save() for _ in range(3))
    # No file was renamed, either.
    assert {path.name: path.stat().st_ino for path in (site / "cache").iterdir()} == before
    assert [str(path) in each and "777" in each for each in warnings()] == [True, True]
    path.chmod(mode)
    assert cache.keeper.save()
    assert make().get("a") == 2


def test_a_parent_of_another_user_is_refused(make, site, monkeypatch):
    if os.geteuid() == 0:
        os.chown(site, NOBODY, NOBODY)
    else:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(FileUnusable, match="must belong to root or to the user"):
        make()


def test_a_link_on_the_way_is_followed_and_what_it_leads_through_is_looked_at(make, site, tmp_path):
    (tmp_path / "link").symlink_to(site)
    (site / "link").symlink_to(tmp_path)
    save(make, tmp_path / "link" / "cache")
    assert make(tmp_path / "link" / "cache").get("a") == 1
    site.chmod(0o777)
    for way in (
        tmp_path / "link" / "cache",
        tmp_path / "link" / ".." / "site" / "cache",
        # A link that any user can replace, to a safe directory.
        site / "link" / "cache",
    ):
        with pytest.raises(FileUnusable, match="777"):
            make(way)


def test_links_that_lead_to_each_other_are_an_error(make, site):
    (site / "one").symlink_to(site / "two")
    (site / "two").symlink_to(site / "one")
    with pytest.raises(FileUnusable, match="symbolic links"):
        make(site / "one" / "cache")


@pytest.mark.parametrize(
    ("name", "members", "is_good"),
    # As where users have groups of their own and an umask of 002; one with others in it; another one; an unknown one.
    [("own", [], True), ("own", ["another"], False), ("staff", [], False), (None, [], False)],
)
def test_a_parent_that_a_group_may_write_is_good_if_this_user_is_all_of_the_group(
    make, site, monkeypatch, name, members, is_good
):
    me = pwd.getpwuid(os.geteuid())
    if me.pw_uid == 0:
        # Root's group is root's, whatever its members.
        os.chown(site, 0, NOBODY)
    site.chmod(0o775)
    gid = site.stat().st_gid

    def group(_):
        if name is None:
            raise KeyError(gid)
        return grp.struct_group((me.pw_name if name == "own" else name, "x", gid, members))

    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd((me.pw_name, "x", me.pw_uid, gid, "", "", "")))
    if is_good:
        save(make)
        assert make().get("a") == 1
    else:
        with pytest.raises(FileUnusable, match="775"):
            make()


def test_a_sticky_parent_is_fine(make, site):
    site.chmod(0o1777)
    save(make)
    assert make().get("a") == 1
