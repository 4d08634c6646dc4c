"""``manage.py wheelcache why`` in processes of its own."""

import json

import pytest

from tests.pages.why import line_of
from tests.watch.published import look
from wheelcache.pages.reasons import REASONS

pytestmark = pytest.mark.deep

COMMAND = ["-m", "django", "wheelcache"]
SITE = "tests/pages/on_django/why_site.py"


@pytest.fixture
def environment(tmp_path):
    figures = tmp_path / "figures"
    yield {"DJANGO_SETTINGS_MODULE": "tests.pages.on_django.why_settings", "WHY_FIGURES": str(figures)}
    # The process of the command was no worker of the site.
    assert not figures.exists() or not look(figures).caches


@pytest.fixture(params=["wsgi", "asgi"])
def ask(request, python, environment):
    def ask(*given, command="why"):
        done = python(*COMMAND, command, *given, **environment, WHY_SITE=request.param)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return ask


def test_the_view_that_reads_the_address_is_named(ask):
    answer = ask("/address")
    assert answer[0] == "GET http://example.com/address: 200 OK."
    assert answer[1].startswith("The page is not stored: reads REMOTE_ADDR. The application read the address")
    assert "ignore_reads_by" in answer[2]
    assert answer[-1] == f"  REMOTE_ADDR: {SITE}, line {line_of(SITE, 'REMOTE_ADDR')}, in address"


def test_the_middleware_that_reads_the_browser_is_named(ask):
    answer = ask("https://www.example.com/logged", "--header", "User-Agent: Firefox")
    assert answer[0] == "GET https://www.example.com/logged: 200 OK."
    assert "It depends on the header User-Agent, and is stored once for each combination of their values." in answer
    function = "in log_access.<locals>.middleware"
    assert answer[-1] == f"  User-Agent: {SITE}, line {line_of(SITE, 'User-Agent')}, {function}"


def test_the_template_that_reads_a_cookie_is_named(ask):
    answer = ask("/themed", "--header", "Cookie: theme=dark")
    assert "It depends on the cookie theme, and is stored once for each combination of their values." in answer
    assert answer[-1] == "  cookie theme: page.html, line 2"


def test_the_code_that_writes_the_session_and_sets_a_cookie_is_named(ask):
    answer = ask("/counts")
    assert answer[1].startswith("The page is not stored: sets cookie")
    place = answer.index("The application wrote these keys of the session and these cookies:")
    assert answer[place + 1 : place + 3] == [
        f"  session visits: {SITE}, line {line_of(SITE, 'visits')}, in counts",
        f"  cookie seen: {SITE}, line {line_of(SITE, 'set_cookie')}, in counts",
    ]


def test_a_path_is_rehearsed_for_a_visitor(ask):
    visitor = ("--header", "Cookie: name=ada")
    assert ask("--path", "/hidden", *visitor, command="rehearsal") == [
        "wrong: tests.pages.on_django.why_site.hidden, /hidden, line 2",
        "  stored:  <p>you</p>",
        "  visitor: <p>name=ada</p>",
    ]
    assert ask("--path", "/plain?page=2", *visitor, command="rehearsal") == [
        "The stored page equals the answer to this visitor."
    ]
    (found,) = json.loads("".join(ask("--path", "/hidden", *visitor, "--json", command="rehearsal")))["differences"]
    assert (found["kind"], found["line"], found["visitor"]) == ("wrong", 2, "<p>name=ada</p>")


def test_the_rehearsal_of_a_page_that_is_not_stored_names_the_code(ask):
    answer = ask("--path", "/address", command="rehearsal")
    assert answer == ask("/address")


def test_headers_without_a_path_are_refused(python, environment):
    done = python(*COMMAND, "rehearsal", "--header", "Cookie: a=b", **environment)
    assert "--header is only for --path" in done.stderr


def test_a_stored_page_and_a_parameter_that_no_code_reads(ask):
    answer = ask("/plain?page=2&ref=x&utm_source=y")
    assert answer[1] == "The page is stored."
    assert answer[2].startswith("It is fresh for 60 s. After that, visitors get it for 30 s while it is renewed")
    assert answer[3:5] == [
        "It is the same for all visitors without a session.",
        "A second request was answered from the cache.",
    ]
    assert answer[5] == (
        "The application did not read the query parameters ref, utm_source. If they never change the page, set "
        "ignore_query=['ref', *TRACKING]."
    )


def test_a_link_of_a_stranger_does_not_control_the_terminal(ask):
    answer = ask("/plain?%1B%5D0;evil%07=1")
    assert answer[-1] == (
        "The application did not read the query parameters \\x1b]0;evil\\x07. If they never change the page, set "
        r"ignore_query=['\x1b]0;evil\x07']."
    )


def test_a_page_of_the_session_depends_on_it(ask):
    dependencies = "the cookie sessionid (the session)"
    assert f"It depends on {dependencies}, and is stored once for each combination of their values." in ask("/visitor")


def test_a_page_without_a_lifetime_gets_advice(ask):
    sentence = "The response names no lifetime, such as Cache-Control: max-age=60."
    assert ask("now")[1:] == [
        f"The page is not stored: no lifetime. {sentence}",
        f"What to change: {REASONS['no lifetime'].advice_for('/now')}",
    ]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["/broken"], "ZeroDivisionError: in a view"),
        (["ftp://example.com/"], "url must be a URL of http or https"),
        (["/plain", "--header", "theme"], "--header must be like 'Accept-Language: de', not 'theme'."),
    ],
)
def test_an_exception_of_the_application_and_a_wrong_argument_are_reported(python, environment, given, complaint):
    done = python(*COMMAND, "why", *given, **environment)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_a_site_without_an_http_cache_is_told_how_to_wrap_it(python, environment):
    done = python(*COMMAND, "why", "/plain", **environment, WHY_SITE="unwrapped")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not behind an HTTP cache" in done.stderr
    assert "application = page_cache().wsgi(application)" in done.stderr
