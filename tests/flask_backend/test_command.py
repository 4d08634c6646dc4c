"""``flask wheelcache``, in a process that is none of the app's workers."""

import json
import sys

import pytest

from tests import watched_site

pytestmark = pytest.mark.servers

APP = "tests.flask_backend.watched_flask:create_app"
COMMAND = [sys.executable, "-m", "flask", "--app", f"{APP}()", "wheelcache"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {"WATCHED_FIGURES": str(tmp_path_factory.mktemp("figures") / "here")}


@pytest.fixture(scope="module")
def site(environment):
    with watched_site.served(f"{APP}()", environment) as site:
        site.ask_all()
        yield site


def test_it_prints_both_workers_and_exact_sums(site, environment):
    document = watched_site.check_sums(site, COMMAND, **environment)
    assert document["caches"][0]["name"] == "watched"
    assert document["looked_in"] == [environment["WATCHED_FIGURES"]]


def test_watching_refreshes_and_ends_on_ctrl_c(site, environment):
    watched_site.check_watching(site, COMMAND, **environment)


def test_without_rich_json_is_as_ever_and_a_table_says_what_to_install(site, environment):
    command = watched_site.without_rich(COMMAND)
    as_json = watched_site.run([*command, "--json"], **environment)
    assert as_json.returncode == 0, as_json.stderr
    assert len(json.loads(as_json.stdout)["caches"]) == 1
    done = watched_site.run(command, **environment)
    assert done.returncode == 1
    assert 'pip install "wheelcache[cli]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_worker_it_says_so_and_where_it_looked(tmp_path):
    done = watched_site.run(COMMAND, WATCHED_FIGURES=str(tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert "No worker of this site publishes figures" in done.stdout
    assert f"{tmp_path / 'none'}, as user" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--watch"], 1, "--watch needs a terminal"),
        (["--watch", "--json"], 1, "leave --watch out"),
        (["--watch", "0"], 2, "a number of seconds above 0, not '0'"),
        (["--watch", "soon"], 2, "a number of seconds above 0, not 'soon'"),
    ],
)
def test_what_makes_no_sense_is_refused(environment, options, code, complaint):
    done = watched_site.run([*COMMAND, *options], **environment)
    assert done.returncode == code
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        ("without_any", "The app 'bare' has no Flask-Caching cache"),
        ("without_ours", "No cache of the app 'watched' is one of wheelcache.flask_backend"),
    ],
)
def test_an_app_without_our_cache_is_told(factory, complaint):
    command = [sys.executable, "-m", "flask", "--app", f"tests.flask_backend.watched_flask:{factory}", "wheelcache"]
    done = watched_site.run(command)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_where_there_is_no_flask_caching_every_other_flask_command_works():
    """An entry point that cannot be imported would break them all."""
    code = "import sys; sys.modules['flask_caching'] = None; from flask.cli import main; main()"
    done = watched_site.run([sys.executable, "-c", code, "--app", "tests.flask_backend.bare:app", "routes"])
    assert done.returncode == 0, done.stderr
    assert "static" in done.stdout
