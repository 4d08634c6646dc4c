"""``flask wheelcache why`` in processes of its own."""

import json
import re

import pytest

from tests.pages.why import line_of
from tests.watch.published import look

APP = "tests/pages/on_flask/why_app.py"


@pytest.fixture
def command(python, tmp_path):
    def command(*given, app="create_app"):
        flask = ["-m", "flask", f"--app=tests.pages.on_flask.why_app:{app}"]
        return python(*flask, "wheelcache", *given, WHY_FIGURES=str(tmp_path / "figures"))

    yield command
    # The process of the command was no worker of the site.
    assert not (tmp_path / "figures").exists() or not look(tmp_path / "figures").caches


@pytest.fixture
def ask(command):
    def ask(*given):
        done = command("why", *given)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return ask


def test_the_view_that_reads_the_address_is_named(ask):
    answer = ask("/address")
    assert answer[0] == "GET http://localhost/address: 200 OK."
    assert answer[1].startswith("The page is not stored: reads REMOTE_ADDR. ")
    where = f"{APP}, line {line_of(APP, 'remote_addr')}, in create_app.<locals>.address"
    assert answer[-1] == f"  REMOTE_ADDR: {where}"


def test_the_function_that_reads_the_browser_is_named(ask):
    answer = ask("/logged")
    assert "It depends on the header User-Agent, and is stored once for each combination of their values." in answer
    where = f"{APP}, line {line_of(APP, 'User-Agent')}, in create_app.<locals>.log_access"
    assert answer[-1] == f"  User-Agent: {where}"


def test_the_template_that_reads_a_cookie_is_named(ask):
    assert ask("/themed")[-1] == "  cookie theme: <template>, line 2"


def test_the_document_has_the_explanation(command, ask):
    document = json.loads(command("why", "/address", "--json").stdout)
    assert (document["url"], document["status"], document["is_stored"]) == ("http://localhost/address", "200 OK", False)
    assert document["explanation"] == ask("/address")
    assert json.loads(command("why", "/plain", "--json").stdout)["is_stored"]


def test_a_stored_page(ask):
    stored, lifetime, *rest = ask("https://example.com/plain?page=1")[1:]
    assert stored == "The page is stored."
    assert lifetime.endswith("and for 5 s if the application fails (fail_safe).")
    assert rest == [
        "It is the same for all visitors without a session.",
        "A second request was answered from the cache.",
    ]


def test_a_page_for_a_visitor_with_a_session_is_not_stored_unless_it_depends_on_the_session(ask):
    assert ask("/plain", "--header", "Cookie: session=x")[1].startswith("The page is not stored: session. ")


def test_a_page_that_sets_a_cookie_and_one_without_a_lifetime_get_advice(ask):
    answer = ask("/counted")
    assert answer[1].startswith("The page is not stored: sets cookie seen, session. ")
    assert answer[2].startswith("What to change: ")
    place = answer.index("The application wrote these keys of the session and these cookies:")
    assert answer[place + 1 : place + 3] == [
        f"  session visits: {APP}, line {line_of(APP, 'visits')}, in create_app.<locals>.counted",
        f"  cookie seen: {APP}, line {line_of(APP, 'set_cookie')}, in create_app.<locals>.counted",
    ]
    assert ask("/now")[1].startswith("The page is not stored: no lifetime. ")


@pytest.mark.parametrize(
    ("given", "app", "complaint"),
    [
        (["/broken"], "create_app", "ZeroDivisionError: in a view"),
        (["/broken-stream"], "create_app", "ZeroDivisionError: in a stream"),
        (["http://["], "create_app", "Invalid IPv6 URL"),
        (["/plain"], "unwrapped", "not behind an HTTP cache. Add these lines:\n\n  pages = HTTPCache()"),
        (["/plain", "--header", "theme"], "create_app", "--header must be like 'Accept-Language: de', not 'theme'."),
    ],
)
def test_an_exception_of_the_app_and_one_without_a_cache_are_reported(command, given, app, complaint):
    done = command("why", *given, app=app)
    assert done.returncode == 1
    assert complaint in done.stderr
    # The framework may log the exception first.
    assert re.search("^Error: ", done.stderr, re.MULTILINE)


def test_a_path_is_rehearsed_for_a_visitor(command):
    done = command("rehearsal", "--path", "/hidden", "--header", "Cookie: name=ada")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "wrong: hidden, /hidden, line 2",
        "  stored:  <p>you</p>",
        "  visitor: <p>name=ada</p>",
    ]
