"""SNAPSHOT in Django: prefixes, aliases, pages, checks and the command. The rest is in ``tests/backends``."""

import json
import os
from contextlib import nullcontext
from io import StringIO
from itertools import count

import pytest
from django.core import checks
from django.core.cache import caches
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.views.decorators.cache import cache_page

from tests.django_backend.conftest import BACKEND
from tests.engines import engine, save_and_close

VALUES = {"list": [1, {"a": (2, 3)}], "text": "text", "number": 7, "none": None, "bytes": b"\0"}

_sizes = count(1000)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "snapshots"


@pytest.fixture
def restart(place):
    """Django's caches, as after a restart of the site: ``with restart(other={alias settings})``. Saved at the end."""

    def settings_of(location="kept", options=None, **alias):
        options = {"SNAPSHOT": place, "LOG_INTERVAL": None, "MAX_ENTRIES": size, **(options or {})}
        return {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options, **alias}

    class Restarted(override_settings):
        def __init__(self, **aliases):
            # The same location and options would be the same entries.
            nonlocal size
            size = next(_sizes)
            super().__init__(
                CACHES={"default": settings_of(**aliases.pop("default", {}))}
                | {name: settings_of(**alias) for name, alias in aliases.items()}
            )

        def __exit__(self, *exc_info):
            for engine_ in {id(engine(each)): engine(each) for each in caches.all(initialized_only=True)}.values():
                save_and_close(engine_)
            super().__exit__(*exc_info)

    size = 0
    return Restarted


def test_prefixes_versions_and_locations_stay_apart(restart):
    aliases = {
        "default": {"KEY_PREFIX": "one"},
        "two": {"KEY_PREFIX": "two"},
        "a/b": {"location": "a/b"},
        "a_b": {"location": "a_b"},
    }
    with restart(**aliases):
        for name in aliases:
            caches[name].set("key", name)
        caches["default"].set("key", "version 2", version=2)
    with restart(**aliases, three={"KEY_PREFIX": "three"}, c={"location": "c"}):
        assert {name: caches[name].get("key") for name in aliases} == {name: name for name in aliases}
        assert caches["default"].get("key", version=2) == "version 2"
        assert (caches["three"].get("key"), caches["c"].get("key")) == (None, None)


def test_pages_and_values_of_each_serializer_come_back(restart):
    serializers = {"reference": "reference", "json": "tests.django_backend.serializers.Json"}
    aliases = {name: {"location": name, "options": {"SERIALIZER": each}} for name, each in serializers.items()}
    computed = []

    @cache_page(60)
    def page(request):
        computed.append(request)
        return HttpResponse(f"{len(computed)}")

    for _ in range(2):
        with restart(**aliases):
            assert page(RequestFactory().get("/")).content == b"1"
            for name in aliases:
                value = caches[name].get_or_set(name, lambda: computed.append("value") or ["value"])
                assert value == ["value"]
    assert len(computed) == 3


def test_two_aliases_of_one_store_load_once_and_have_one_file(restart, place, caplog):
    caplog.set_level("INFO", "wheelcache")
    with restart(other={"KEY_PREFIX": "other"}):
        caches["default"].set("key", 1)
        caches["other"].set("key", 2)
    with restart(other={"KEY_PREFIX": "other"}):
        assert (caches["default"].get("key"), caches["other"].get("key")) == (1, 2)
    assert len(list(place.glob("*.snapshot"))) == 1
    assert caplog.text.count("Loaded 2 entries") == 1


@pytest.mark.parametrize(
    ("command", "fails"),
    [(["check", "--tag=caches"], False), (["wheelcache"], True), (["wheelcache", "inspect"], False)],
    ids=["check", "report", "inspect"],
)
def test_commands_that_do_not_use_the_cache_neither_load_nor_write(restart, place, command, fails):
    with restart(default={"options": {"FIGURES_DIR": None}}):
        caches["default"].set("key", 1)
    before = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    with restart(default={"options": {"FIGURES_DIR": None}}):
        # The figures of caches that publish none are nowhere.
        with pytest.raises(CommandError, match="do not publish") if fails else nullcontext():
            call_command(*command, stdout=StringIO())
        assert not engine(caches["default"]).keeper.save()
    assert {path: path.stat().st_mtime_ns for path in place.iterdir()} == before


@pytest.mark.parametrize(("other", "errors"), [({"MAX_ENTRIES": 5}, 1), ({}, 0)])
def test_two_caches_that_would_load_each_other_s_entries_are_an_error_of_the_checks(place, other, errors):
    alias = {"BACKEND": BACKEND, "LOCATION": "same", "OPTIONS": {"SNAPSHOT": place}}
    with override_settings(CACHES={"default": alias, "other": {**alias, "OPTIONS": {"SNAPSHOT": place, **other}}}):
        found = [each for each in checks.run_checks(tags=["caches"]) if each.id == "wheelcache.E001"]
    assert len(found) == errors
    assert all(each.is_serious() and "'default' and 'other'" in each.msg for each in found)


# The command.


def test_inspect_tells_whole_damaged_foreign_and_set_aside_ones_apart(restart, place):
    with restart():
        caches["default"].set_many(VALUES)
    [whole] = place.glob("*.snapshot")
    stem = whole.name.removesuffix(".1.snapshot")
    for number, how in ((2, "damaged"), (3, "foreign"), (4, "open")):
        (place / f"{stem}.{number}.snapshot").write_bytes(b"?" if how == "foreign" else whole.read_bytes())
        (place / f"{stem}.{number}.snapshot").chmod(0o622 if how == "open" else 0o600)
    damaged = bytearray(whole.read_bytes())
    damaged[-20] ^= 1
    (place / f"{stem}.2.snapshot").write_bytes(damaged)
    (place / f"{stem}.3.snapshot").rename(place / f"{stem}.3.snapshot.refused")
    out, table = StringIO(), StringIO()
    with restart():
        call_command("wheelcache", "--json", "inspect", stdout=out)
        call_command("wheelcache", "inspect", stdout=table)
    [cache] = json.loads(out.getvalue())["caches"]
    found = {os.path.basename(each["file"]): each for each in cache["snapshots"]}
    states = {name: (each["state"], each["entries"], each["set_aside"]) for name, each in found.items()}
    assert states == {
        f"{stem}.1.snapshot": ("whole", len(VALUES), False),
        f"{stem}.2.snapshot": ("damaged", len(VALUES) - 1, False),
        f"{stem}.4.snapshot": ("refused", None, False),
        f"{stem}.3.snapshot.refused": ("refused", None, True),
    }
    assert "must be writable by its owner only" in found[f"{stem}.4.snapshot"]["reason"]
    assert f"damaged: it is damaged after {len(VALUES) - 1} good records" in table.getvalue()
    assert "set aside, refused: it is not a snapshot of wheelcache" in table.getvalue()
    assert "…" not in table.getvalue()
