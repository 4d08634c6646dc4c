"""The settings in ``app.config``: accepted values, refused values, and the messages."""

import sys
import types
from datetime import timedelta
from enum import StrEnum

import flask
import flask_caching
import pytest

from tests.engines import engine, noted
from tests.flask_backend.conftest import BACKEND, OF_FLASK_CACHING_2_5, JSONSerializer
from tests.guests import needs
from wheelcache.engine.guests import module_of
from wheelcache.engine.option_table import FLASK as OPTIONS
from wheelcache.flask_backend.app_contexts import figures_directory

figures_directory_module = module_of("watch", "figures_directory")

NAN, INF = float("nan"), float("inf")

WHOLE = "a whole number >= 0"
TIMEOUT = "a number of seconds (0 for never) or a timedelta"

WRONG = [
    *(("threshold", wrong, WHOLE) for wrong in (-1, 1.5, 10.0, "10", True, None, NAN, [10])),
    *(("default_timeout", wrong, TIMEOUT) for wrong in (None, True, NAN, [60], b"60")),
    *(("key_prefix", wrong, "a string") for wrong in (b"p", 1, ["p"], lambda: "p")),
    *(("name", wrong, "a string") for wrong in (None, 1, b"name")),
]


def backend_of(**config):
    app = flask.Flask("shop")
    app.config.update(CACHE_TYPE=BACKEND, **config)
    cache = flask_caching.Cache(app)
    return noted(app.extensions["cache"][cache])


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r:.20}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_at_init_app_that_names_it_and_what_it_takes_and_got(option, wrong, takes):
    with pytest.raises((TypeError, ValueError)) as refused:
        backend_of(CACHE_OPTIONS={option: wrong})
    for part in (option, takes, repr(wrong)):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "wrong", "option"),
    [
        ("CACHE_THRESHOLD", -5, "threshold"),
        ("CACHE_THRESHOLD", "500", "threshold"),
        ("CACHE_DEFAULT_TIMEOUT", None, "default_timeout"),
        ("CACHE_DEFAULT_TIMEOUT", 10**400, "default_timeout"),
        ("CACHE_KEY_PREFIX", 7, "key_prefix"),
        ("CACHE_ARGS", [-5], "threshold"),
        ("CACHE_ARGS", [5, None], "default_timeout"),
    ],
)
def test_a_wrong_setting_is_an_error_at_init_app_that_names_it_and_what_it_got(setting, wrong, option):
    with pytest.raises((TypeError, ValueError), match=option) as refused:
        backend_of(**{setting: wrong})
    assert f"not {wrong[-1] if setting == 'CACHE_ARGS' else wrong!r:.200}" in str(refused.value)


@OF_FLASK_CACHING_2_5
@pytest.mark.parametrize("wrong", ["x", "1.5", NAN, [], None])
@pytest.mark.parametrize("in_options", [False, True])
def test_a_wrong_default_timeout_is_an_error_of_the_cache_not_of_flask_caching(wrong, in_options):
    from wheelcache.flask_backend import Cache

    given = {"CACHE_OPTIONS": {"default_timeout": wrong}} if in_options else {"CACHE_DEFAULT_TIMEOUT": wrong}
    with pytest.raises((TypeError, ValueError)) as refused:
        Cache(flask.Flask("shop"), config={"CACHE_TYPE": BACKEND, **given})
    assert str(refused.value) == (
        f"Wrong setting of the cache 'shop': default_timeout must be {TIMEOUT}, not {wrong!r}"
    )


def test_unknown_options_are_an_error_that_names_them_all_their_cache_and_those_there_are():
    of_the_engine = ("ttl", "clock", "weigher", "on_removal", "max_weight")
    with pytest.raises(TypeError, match=r"(?s)'shards' of the cache 'shop'.*'max_entries'") as refused:
        backend_of(CACHE_OPTIONS={"shards": 4, "slots": 8, "max_entries": 1, **dict.fromkeys(of_the_engine)})
    for name in (*map(repr, of_the_engine), "'slots'", *OPTIONS):
        assert name in str(refused.value)
    with pytest.raises(TypeError, match=r"unknown option 'jiter' of the cache 'pages'; did you mean jitter\?"):
        backend_of(CACHE_OPTIONS={"jiter": 0.1, "name": "pages"})
    with pytest.raises(TypeError, match=r"threshold, default_timeout, ignore_delete_many_errors.*8"):
        backend_of(CACHE_ARGS=[500, 300, False, 8])


BY_DEFAULT = {"size": 500, "seconds": 300, "prefix": "flask_cache_", "ignored": False}
SETTINGS = [
    ({}, {}),
    ({"CACHE_THRESHOLD": 7}, {"size": 7}),
    ({"CACHE_THRESHOLD": 0}, {}),
    ({"CACHE_THRESHOLD": 7, "CACHE_OPTIONS": {"threshold": 8}, "CACHE_ARGS": [9]}, {"size": 9}),
    ({"CACHE_DEFAULT_TIMEOUT": 60}, {"seconds": 60}),
    pytest.param({"CACHE_DEFAULT_TIMEOUT": "60"}, {"seconds": 60}, marks=OF_FLASK_CACHING_2_5),
    ({"CACHE_DEFAULT_TIMEOUT": timedelta(minutes=2)}, {"seconds": 120}),
    ({"CACHE_DEFAULT_TIMEOUT": 0}, {"seconds": None}),
    ({"CACHE_DEFAULT_TIMEOUT": 60, "CACHE_OPTIONS": {"default_timeout": 70}}, {"seconds": 70}),
    ({"CACHE_DEFAULT_TIMEOUT": 60, "CACHE_ARGS": [9, 80]}, {"size": 9, "seconds": 80}),
    ({"CACHE_KEY_PREFIX": "shop:"}, {"prefix": "shop:"}),
    ({"CACHE_KEY_PREFIX": StrEnum("Prefix", {"SHOP": "shop:"}).SHOP}, {"prefix": "shop:"}),
    ({"CACHE_KEY_PREFIX": None}, {"prefix": ""}),
    ({"CACHE_KEY_PREFIX": "shop:", "CACHE_OPTIONS": {"key_prefix": "other:"}}, {"prefix": "other:"}),
    pytest.param({"CACHE_IGNORE_ERRORS": True}, {"ignored": True}, marks=OF_FLASK_CACHING_2_5),
    ({"CACHE_OPTIONS": {"ignore_delete_many_errors": True}}, {"ignored": True}),
    ({"CACHE_ARGS": [500, 300, True]}, {"ignored": True}),
]


@pytest.mark.parametrize(("config", "expected"), SETTINGS, ids=repr)
def test_args_come_before_options_and_those_before_the_settings_of_flask_caching(clock, config, expected):
    backend = backend_of(**{**config, "CACHE_OPTIONS": {"jitter": 0, **config.get("CACHE_OPTIONS", {})}})
    backend.set("key", 1)
    [key] = engine(backend).keys()
    found = {"prefix": key.removesuffix("key"), "seconds": engine(backend).expires_in(key)}
    backend.set_many({str(number): number for number in range(1000)})
    found |= {"size": len(engine(backend)), "ignored": backend.ignore_delete_many_errors}
    assert found == {**BY_DEFAULT, **expected}


@OF_FLASK_CACHING_2_5
@pytest.mark.parametrize("serializer", [JSONSerializer, JSONSerializer()], ids=["class", "object"])
def test_the_serializer_of_the_settings_does_the_work_for_its_app_only(serializer):
    with_json, without = backend_of(CACHE_SERIALIZER=serializer), backend_of()
    assert isinstance(with_json.serializer, JSONSerializer)
    for backend in (with_json, without):
        backend.set("key", {"a": (1, 2)})
    assert with_json.get("key") == {"a": [1, 2]}
    assert without.get("key") == {"a": (1, 2)}


@pytest.mark.parametrize(("options", "name"), [({}, "shop"), ({"name": "fragments"}, "fragments")])
def test_a_cache_is_called_as_its_app_unless_told_otherwise(options, name):
    assert backend_of(CACHE_OPTIONS=options).engine.name == name


@needs("watch")
def test_sites_are_told_by_their_names_and_folders_whether_they_are_imported_or_run_as_a_script(tmp_path, monkeypatch):
    monkeypatch.setattr(figures_directory_module, "runtime_directory", lambda: tmp_path)
    script = types.ModuleType("__main__")
    script.__file__ = str(tmp_path / "shop.py")
    monkeypatch.setitem(sys.modules, "__main__", script)

    def directory(name="shop", root="root", instance="instance"):
        return figures_directory(
            flask.Flask(name, root_path=str(tmp_path / root), instance_path=str(tmp_path / instance))
        )

    assert directory() == directory(name="__main__")
    assert len({directory(), directory("another"), directory(root="two"), directory(instance="two")}) == 4
