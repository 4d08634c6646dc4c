"""``HostCache`` of both frameworks: two processes have the same entries, and a cache that cannot work is an error.

``tests/backends`` tests the calls of each backend.
"""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import flask
import flask_caching
import pytest
from django.test import override_settings

from tests.backends.adapter import names
from tests.django_backend.configured import assert_warns_beside_options, assert_warns_of_one_store, host, warnings_for
from tests.guests import needs
from tests.host_cache.adapters import OnDjangoHost, OnFlaskHost
from tests.host_cache.workers import make_cache
from wheelcache.django_backend import memoize, memoized_functions
from wheelcache.flask_backend import HostCache
from wheelcache.host_cache import place
from wheelcache.host_cache.options import DJANGO_HOST
from wheelcache.host_cache.place import file_system_of, folder_of
from wheelcache.host_cache.place import test_process as process_name

MIB = 1 << 20


@pytest.fixture(params=[OnDjangoHost, OnFlaskHost], ids=["django", "flask"])
def adapter(request):
    return request.param


# Each call by one process acts on the entries of another one. Another size makes it another cache of this process.


@pytest.fixture(params=[False, True], ids=["named", "in a folder"])
def both(request, adapter, tmp_path):
    name, sizes = next(names), (MIB, 2 * MIB)
    if request.param:
        return [adapter.at(tmp_path / "cache", max_size=size) for size in sizes]
    return [adapter.make(name, max_size=size) for size in sizes]


def test_two_processes_have_the_same_entries(both):
    for one, other in (both, both[::-1]):
        one.clear()
        for value in ({"a": [1]}, "\ud800", 2**63, -(2**63) - 1, True, b"b"):
            one.set("k", value)
            assert repr(other.get("k")) == repr(value)
        assert not other.add("k", 1)
        assert other.delete("k")
        assert one.get("k") is None
        assert other.add("n", 1)
        assert not one.add("n", 2)
        assert [one.count("n"), other.count("n", 5)] == [2, 7]
        assert one.set_many({"a": 1, "b": [2]}) == []
        assert other.get_many(["a", "b", "c"]) == {"a": 1, "b": [2]}
        other.delete_many(["a", "c"])
        assert one.get_many(["a", "b"]) == {"b": [2]}
        assert other.has("b")
        assert one.load("l", lambda: ["one"]) == other.load("l", lambda: ["other"]) == ["one"]
        one.backend.set("t", 1, tags=["tag"])
        other.backend.delete_tags("tag")
        assert one.get("t") is None
        one.clear()
        assert other.get("n") is None


def test_other_names_and_folders_have_entries_of_their_own(adapter, tmp_path):
    name = next(names)
    caches = [adapter.make(name), adapter.make(next(names)), adapter.at(tmp_path / "a"), adapter.at(tmp_path / "b")]
    caches[0].set("k", 1)
    assert [cache.get("k") for cache in caches] == [1, None, None, None]


# Start-up.


def test_a_location_without_a_folder_around_it_is_an_error_that_names_both(adapter, tmp_path):
    with pytest.raises(adapter.refused, match=r"/missing/cache cannot be created, since .*/missing"):
        adapter.at(tmp_path / "missing" / "cache")


def test_a_location_that_is_no_private_folder_is_an_error(adapter, tmp_path, monkeypatch):
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").touch(mode=0o600)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "private")
    faults = {"open": "accessible to its owner only", "file": "a directory", "link": "links are not followed"}
    for name, fault in faults.items():
        with pytest.raises(adapter.refused, match=f"/{name} must be .*{fault}"):
            adapter.at(tmp_path / name)
    adapter.at(tmp_path / "private")
    # A server may load the site as another user than that of its workers.
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    adapter.at(tmp_path / "open")


@pytest.mark.parametrize(("version", "is_refused"), [((3, 31, 9), True), ((3, 32, 0), False)])
def test_an_old_sqlite_is_an_error(adapter, tmp_path, monkeypatch, version, is_refused):
    monkeypatch.setattr("sqlite3.sqlite_version_info", version)
    monkeypatch.setattr("sqlite3.sqlite_version", "3.31.9")
    message = r"a HostCache needs SQLite 3\.32 or later, not 3\.31\.9"
    with pytest.raises(adapter.refused, match=message) if is_refused else nullcontext():
        adapter.at(tmp_path / "cache")


MOUNTS = """
rootfs / ext4 rw 0 0
server:/srv /srv nfs4 rw 0 0
tmpfs /srv/in\\040memory tmpfs rw 0 0
"""


def test_a_network_file_system_is_an_error(adapter, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path, **given: MOUNTS.strip())
    found = [file_system_of(Path(path)) for path in ("/srv", "/srv/site", "/srv/in memory/site", "/srvs", "/")]
    assert found == ["nfs4", "nfs4", "tmpfs", "ext4", "ext4"]
    for kind in place.REMOTE:
        monkeypatch.setattr(place, "file_system_of", lambda path, kind=kind: kind)
        with pytest.raises(
            adapter.refused, match=rf"is on a network file system \({kind}\), which has no shared memory"
        ):
            adapter.at(tmp_path / "cache")


def test_a_file_system_of_which_the_cache_needs_more_than_three_quarters_is_a_warning_with_both_figures(
    adapter, tmp_path, caplog, monkeypatch
):
    room = SimpleNamespace(f_blocks=4096, f_bavail=4096, f_frsize=4096)
    monkeypatch.setattr(place.os, "statvfs", lambda path: room)
    adapter.at(tmp_path / "cache", max_size=12 * MIB)
    adapter.at(tmp_path / "cache", max_size=12 * MIB + 1)
    (message,) = (each for each in caplog.messages if str(tmp_path) in each)
    assert "12 MiB (MAX_SIZE)" in message
    assert f"{tmp_path}/cache has 16 MiB" in message


@pytest.mark.parametrize("wrong", [MIB - 1, 1.5e6, "1MB", True, None])
def test_a_wrong_size_is_an_error_that_names_it(adapter, wrong):
    with pytest.raises(adapter.refused, match=r"(?i)max_size.* a number of bytes, an int >= 1048576, not"):
        adapter.make(max_size=wrong)
    adapter.make(max_size=MIB)


@pytest.mark.parametrize("has_figures", [False, pytest.param(True, marks=needs("watch"))])
def test_nothing_is_created_before_the_first_use_which_may_be_a_read(adapter, tmp_path, has_figures):
    reader = adapter.at(tmp_path / "cache", figures_dir=str(tmp_path / "figures") if has_figures else None)
    assert not (tmp_path / "cache").exists()
    adapter.at(tmp_path / "cache", max_size=MIB).set("key", "value")
    assert reader.get("key") == "value"


# What only one framework has.


SITES = [{"SECRET_KEY": "another"}, {"BASE_DIR": "/another"}, {"SETTINGS_MODULE": "another.settings"}]


@pytest.mark.parametrize("another", SITES, ids=str)
def test_two_sites_of_django_with_one_location_have_entries_of_their_own(another):
    caches = [OnDjangoHost.make("sessions")]
    with override_settings(**another):
        caches.append(OnDjangoHost.make("sessions"))
    caches.append(OnDjangoHost.make("sessions"))
    caches[0].set("k", 1)
    assert [cache.get("k") for cache in caches] == [1, None, 1]


@pytest.mark.parametrize("given", [{}, {"location": "sessions"}])
def test_a_cache_of_flask_that_would_be_that_of_all_sites_of_the_user_is_an_error(given):
    with pytest.raises(ValueError, match=r"needs an identity of the site, or a path as location"):
        HostCache(**given)


def in_app(name, folder, is_testing=False, **config):
    folder.mkdir(exist_ok=True)
    app = flask.Flask(name, instance_path=str(folder))
    app.testing = is_testing
    config = {"CACHE_TYPE": "wheelcache.flask_backend.HostCache", **config}
    cache = flask_caching.Cache(app, config=config)
    return app.extensions["cache"][cache]


def test_apps_of_flask_share_entries_if_they_have_one_name_and_one_instance_folder(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    cache = in_app("site", one)
    cache.set("k", 1)
    found = [in_app(*given).get("k") for given in (("site", one), ("other", one), ("site", two))]
    assert found == [1, None, None]
    # Each app of a test has entries of its own.
    in_app("site", one, is_testing=True).set("k", 2)
    assert in_app("site", one, is_testing=True).get("k") is None
    assert not cache.is_of_this_process()


def test_the_arguments_of_flask_caching_set_the_bound_and_its_threshold_does_not(tmp_path):
    cache = in_app("bounded", tmp_path, CACHE_ARGS=[2], CACHE_THRESHOLD=1)
    for number in range(3):
        cache.set(f"{number}", 1)
    assert [cache.get(f"{number}") for number in range(3)] == [None, 1, 1]
    with pytest.raises(TypeError, match="CACHE_ARGS must be at most max_entries, default_timeout, ignore"):
        in_app("wrong", tmp_path, CACHE_ARGS=[2, 300, True, 4])


def test_a_cache_of_django_is_named_by_its_location_unless_that_is_a_path(tmp_path):
    made = OnDjangoHost.make("sessions"), OnDjangoHost.at(tmp_path / "cache")
    assert [each.backend.store.cache.name for each in made] == ["sessions", "default"]


def test_references_are_no_serializer_of_django():
    with pytest.raises(OnDjangoHost.refused, match="the workers share no objects"):
        OnDjangoHost.make(serializer="reference")


WELL = [
    # Each has a folder of its own.
    {"default": host(), "small": host(MAX_SIZE=1 << 20), "named": host("n"), "other": host("o"), "same": host("o")},
    # An option of a WheelCache is none of a HostCache's.
    {"default": {**host(), "POLICY": "lru"}},
]


@pytest.mark.parametrize("configured", WELL)
def test_there_is_no_warning_of_django_when_all_is_well(configured):
    assert warnings_for(**configured) == []


def test_aliases_without_a_location_that_share_one_store_are_a_warning_that_names_them():
    assert_warns_of_one_store(host(), host())


def test_aliases_with_one_location_and_different_options_are_a_warning_since_they_share_entries_and_limits():
    (warning,) = warnings_for(default=host("site"), b=host("site", MAX_ENTRIES=50), c=host("site"), d=host("other"))
    assert warning.id == "wheelcache.W001"
    for part in ("'default', 'b' and 'c'", "LOCATION 'site'", "share their entries"):
        assert part in warning.msg


@pytest.mark.parametrize("option", DJANGO_HOST)
def test_an_option_beside_options_is_a_warning_that_names_it_and_its_alias(option):
    assert_warns_beside_options("machine", option, {"default": host("default"), "machine": host()})


def test_a_folder_that_others_can_access_is_a_warning_with_the_cause(monkeypatch, tmp_path):
    # Tests have other folders.
    monkeypatch.setattr("wheelcache.host_cache.django_host.test_process", lambda **_: "")
    folder = tmp_path / "cache"
    assert warnings_for(default=host(str(folder))) == []
    folder.mkdir(0o700)
    assert warnings_for(default=host(str(folder))) == []
    folder.chmod(0o750)
    (warning,) = warnings_for(default=host(str(folder)))
    assert warning.id == "wheelcache.W011"
    assert f"The cache 'default' is empty for this user: {folder} must be accessible to its owner only" in warning.msg


# The folders.


def test_the_folders_of_ended_test_processes_are_removed_and_those_of_others_stay(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    of_ended, of_site = tmp_path / f"cache-tests-0-{ended.pid}", tmp_path / "cache"
    own, next_own = (folder_of(str(of_site), "", process_name(is_testing=True, number=number)) for number in (1, 2))
    similar = [tmp_path / f"cache-tests-{name}" for name in ("data", "4194305", "0-4194305")]
    for folder in (of_ended, of_site, own, *similar):
        folder.mkdir(mode=0o700)
        if folder not in similar:
            make_cache(folder).set("k", 1)
    assert folder_of(str(of_site), "", process_name(is_testing=True, number=2)) == next_own
    assert {*tmp_path.iterdir()} == {of_site, own, *similar}


def test_versions_of_a_memoized_function_of_django_have_values_of_their_own(monkeypatch):
    with override_settings(CACHES={"default": host()}):
        found = []
        for version in (1, 2, None, 1):
            # As in several releases, in which the function has the same name.
            monkeypatch.setattr(memoized_functions, "_names", memoized_functions.Groups())
            found.append(memoize(version=version)(lambda: len(found))())
    assert found == [0, 1, 0, 0]
