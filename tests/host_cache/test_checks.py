"""Django's system checks of caches of the machine."""

import pytest

from tests.django_backend.configured import assert_warns_beside_options, assert_warns_of_one_store, host, warnings_for
from wheelcache.host_cache.options import DJANGO_HOST


@pytest.mark.parametrize(
    "configured",
    [
        # Each has a folder of its own.
        {"default": host(), "small": host(MAX_SIZE=1 << 20), "named": host("n"), "other": host("o"), "same": host("o")},
        # An option of a WheelCache is none of a HostCache's.
        {"default": {**host(), "POLICY": "lru"}},
    ],
)
def test_there_is_no_warning_when_all_is_well(configured):
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
