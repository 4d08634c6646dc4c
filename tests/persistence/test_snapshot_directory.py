"""The directory of SNAPSHOT, of which others could put another one in the place: refused at the start, at every load
and at every save."""

import grp
import logging
import os
import pwd

import pytest

from wheelcache import Cache, ManualClock
from wheelcache.errors import FileUnusable

NOBODY = 65534


class Bomb:
    """A value that says so when it is unpickled."""

    exploded = 0

    def __reduce__(self):
        return Bomb.explode, ()

    @staticmethod
    def explode():
        Bomb.exploded += 1


@pytest.fixture(autouse=True)
def _no_bomb_went_off():
    Bomb.exploded = 0
    yield
    Bomb.exploded = 0


@pytest.fixture
def site(tmp_path):
    """Where the directory of the snapshots is made: this user's, for others to read."""
    path = tmp_path / "site"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def make(site):
    made = []

    def one(directory=None, **options):
        directory = site / "cache" if directory is None else directory
        made.append(
            Cache(
                "mine",
                snapshot_dir=directory,
                clock=ManualClock(),
                log_interval=None,
                sample_interval=None,
                **options,
            )
        )
        return made[-1]

    yield one
    for cache in made:
        cache.close()


def save(make, directory=None, **values):
    cache = make(directory)
    cache.set_many(values or {"a": 1})
    assert cache.keeper.save()
    cache.close()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def replace_by_bombs(make, site, tmp_path):
    """What another user does that may write ``site``: rename the directory, and put a link in its place to files that
    belong to this user, too, as uploads do."""
    uploads = tmp_path / "uploads"
    save(make, uploads, a=Bomb())
    (site / "cache").rename(site / "old")
    (site / "cache").symlink_to(uploads)


def test_a_directory_that_another_user_has_replaced_is_not_loaded_from(make, site, tmp_path, caplog):
    save(make)
    cache = make()
    replace_by_bombs(make, site, tmp_path)
    assert cache.get("a") is None
    assert Bomb.exploded == 0
    (warning,) = warnings(caplog)
    assert f"{site / 'cache'}" in warning
    assert "'mine'" in warning


def test_nor_saved_to(make, site, tmp_path, caplog):
    save(make)
    cache = make()
    cache.set("a", 2)
    uploads = tmp_path / "uploads"
    uploads.mkdir(mode=0o700)
    (site / "cache").rename(site / "old")
    (site / "cache").symlink_to(uploads)
    for _ in range(3):
        assert not cache.keeper.save()
    assert list(uploads.iterdir()) == []
    assert len(warnings(caplog)) == 1


def test_a_parent_that_all_may_write_is_refused_at_the_start(make, site):
    site.chmod(0o777)
    with pytest.raises(FileUnusable, match="snapshot_dir") as refused:
        make()
    assert str(site) in str(refused.value)
    assert "777" in str(refused.value)
    assert not (site / "cache").exists()


def test_and_a_parent_s_parent(make, site):
    (site / "deeper").mkdir(mode=0o700)
    site.chmod(0o777)
    with pytest.raises(FileUnusable, match="777"):
        make(site / "deeper" / "cache")


def test_and_at_every_load(make, site, caplog):
    save(make)
    cache = make()
    site.chmod(0o777)
    assert cache.get("a") is None
    (warning,) = warnings(caplog)
    assert str(site) in warning
    assert "777" in warning
    # Nothing is set aside by whoever may not say what is in there.
    assert not list((site / "cache").glob("*.refused"))


def test_and_at_every_save_until_it_is_mended(make, site, caplog):
    cache = make()
    cache.set("a", 1)
    assert cache.keeper.save()
    before = {path.name: path.stat().st_ino for path in (site / "cache").iterdir()}
    site.chmod(0o777)
    for _ in range(3):
        assert not cache.keeper.save()
    assert {path.name: path.stat().st_ino for path in (site / "cache").iterdir()} == before
    (warning,) = warnings(caplog)
    assert "777" in warning
    site.chmod(0o755)
    assert cache.keeper.save()
    assert make().get("a") == 1


def test_the_directory_itself_is_looked_at_each_time(make, site, caplog):
    save(make)
    cache = make()
    (site / "cache").chmod(0o777)
    assert cache.get("a") is None
    cache.set("a", 2)
    assert not cache.keeper.save()
    assert ["777" in each for each in warnings(caplog)] == [True, True]


def test_a_parent_of_another_user_is_refused(make, site, monkeypatch):
    if os.geteuid() == 0:
        os.chown(site, NOBODY, NOBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(FileUnusable, match="must belong to root or to the user"):
        make()


def test_a_link_on_the_way_is_followed_and_what_it_leads_through_is_looked_at(make, site, tmp_path):
    (tmp_path / "link").symlink_to(site)
    save(make, tmp_path / "link" / "cache")
    assert make(tmp_path / "link" / "cache").get("a") == 1
    site.chmod(0o777)
    with pytest.raises(FileUnusable, match="777"):
        make(tmp_path / "link" / "cache")
    with pytest.raises(FileUnusable, match="777"):
        make(tmp_path / "link" / ".." / "site" / "cache")


def test_a_link_in_a_parent_that_all_may_write_is_refused(make, site, tmp_path):
    (site / "link").symlink_to(tmp_path)
    site.chmod(0o777)
    with pytest.raises(FileUnusable, match="777"):
        make(site / "link" / "cache")


def test_links_that_lead_to_each_other_are_an_error(make, site):
    (site / "one").symlink_to(site / "two")
    (site / "two").symlink_to(site / "one")
    with pytest.raises(FileUnusable, match="symbolic links"):
        make(site / "one" / "cache")


@pytest.fixture
def group(site, monkeypatch):
    """Let a group write ``site``: the one that has this user's name, if it is ``own``, with these ``members``."""
    me = pwd.getpwuid(os.geteuid())
    if me.pw_uid == 0:
        # Root's group is root's, whatever its members.
        os.chown(site, 0, NOBODY)
    site.chmod(0o775)
    gid = site.stat().st_gid

    def give(*members, own):
        name = me.pw_name if own else "staff"
        monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", gid, list(members))))
        monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd((me.pw_name, "x", me.pw_uid, gid, "", "", "")))

    return give


def test_the_group_of_this_user_alone_may_write_a_parent(make, group):
    """As where users have groups of their own and an umask of 002."""
    group(own=True)
    save(make)
    assert make().get("a") == 1


@pytest.mark.parametrize(("members", "own"), [(["another"], True), ([], False)])
def test_a_group_with_others_in_it_may_not(make, group, members, own):
    group(*members, own=own)
    with pytest.raises(FileUnusable, match="775"):
        make()


def test_nor_may_a_group_that_is_not_known(make, site, group, monkeypatch):
    def unknown(gid):
        raise KeyError(gid)

    group(own=True)
    monkeypatch.setattr(grp, "getgrgid", unknown)
    with pytest.raises(FileUnusable, match="775"):
        make()


def test_a_sticky_parent_is_fine(make, site):
    site.chmod(0o1777)
    save(make)
    assert make().get("a") == 1
