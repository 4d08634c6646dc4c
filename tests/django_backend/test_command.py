"""``manage.py wheelcache``, in a process that is none of the site's workers."""

import json
import sys

import pytest

from tests import watched_site

pytestmark = pytest.mark.servers

COMMAND = [sys.executable, "-m", "tests.django_backend.watched_django", "wheelcache"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {"WATCHED_FIGURES": str(tmp_path_factory.mktemp("figures") / "here")}


@pytest.fixture(scope="module")
def site(environment):
    with watched_site.served("tests.django_backend.watched_django:application", environment) as site:
        site.ask_all()
        yield site


def test_it_prints_both_workers_and_exact_sums(site, environment):
    document = watched_site.check_sums(site, COMMAND, **environment)
    assert document["caches"][0]["name"] == "watched"
    assert document["looked_in"] == [environment["WATCHED_FIGURES"]]
    assert document["since"] is None


def test_watching_refreshes_and_ends_on_ctrl_c(site, environment):
    watched_site.check_watching(site, COMMAND, **environment)


def test_a_narrow_terminal_has_the_workers_side_by_side(site, environment):
    watched_site.check_sums(site, COMMAND, **environment)
    done = watched_site.run(COMMAND, **environment, COLUMNS="50")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 50
    assert "stampedes prevented" in done.stdout
    for pid, gets in site.gets.items():
        assert str(pid) in done.stdout
        assert f"{sum(gets):,}" in done.stdout
    assert "…" not in done.stdout


def test_without_rich_json_is_as_ever_and_a_table_says_what_to_install(site, environment):
    command = watched_site.without_rich(COMMAND)
    as_json = watched_site.run([*command, "--json"], **environment)
    assert as_json.returncode == 0, as_json.stderr
    assert len(json.loads(as_json.stdout)["caches"]) == 1
    for options in ([], ["--watch"]):
        done = watched_site.run([*command, *options], **environment)
        assert done.returncode == 1
        assert 'pip install "wheelcache[cli]"' in done.stderr
        assert "Traceback" not in done.stderr


def test_without_a_worker_it_says_so_and_where_it_looked(tmp_path):
    environment = {"WATCHED_FIGURES": str(tmp_path / "none")}
    done = watched_site.run(COMMAND, **environment)
    assert done.returncode == 0
    assert "No worker of this site publishes figures" in done.stdout
    assert f"{tmp_path / 'none'}, as user" in done.stdout
    assert json.loads(watched_site.run([*COMMAND, "--json"], **environment).stdout)["caches"] == []


def test_caches_that_do_not_publish_are_named_as_the_reason():
    done = watched_site.run(COMMAND, WATCHED_FIGURES="")
    assert done.returncode == 0
    assert "do not publish their figures" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--watch"], 1, "--watch needs a terminal"),
        (["--watch", "--json"], 1, "leave --watch out"),
        (["--watch", "0"], 2, "a number of seconds above 0, not '0'"),
        (["--watch", "nan"], 2, "a number of seconds above 0, not 'nan'"),
        (["--watch", "soon"], 2, "a number of seconds above 0, not 'soon'"),
    ],
)
def test_what_makes_no_sense_is_refused(environment, options, code, complaint):
    done = watched_site.run([*COMMAND, *options], **environment)
    assert done.returncode == code
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_no_terminal_gets_the_whole_table_and_no_colours_whatever_the_environment_says(site, environment):
    done = watched_site.run(COMMAND, **environment, FORCE_COLOR="1", TTY_COMPATIBLE="1")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "hit ratio" in done.stdout.splitlines()[0]
    watching = watched_site.run([*COMMAND, "--watch"], **environment, FORCE_COLOR="1")
    assert (watching.returncode, watching.stdout) == (1, "")


def test_a_site_without_our_cache_is_told(environment):
    backend = {"WATCHED_BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    done = watched_site.run(COMMAND, **environment, **backend)
    assert done.returncode == 1
    assert "None of CACHES is a cache of wheelcache" in done.stderr
