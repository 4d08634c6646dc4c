"""``wheelcache why`` and ``wheelcache rehearsal --path``, in the process of the test."""

import json
from importlib.metadata import version
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.pages.on_both.sites import cookies_of, environ_of, line_of, query_of, response_to, session_of
from wheelcache.runtime.clock import SystemClock

pytest.importorskip("wheelcache.watch")

from wheelcache.watch import publisher
from wheelcache.watch.flask_commands import wheelcache

FILE = "tests/pages/on_both/test_why.py"


def address(request):
    return environ_of(request)["REMOTE_ADDR"]


def counts(request):
    session_of(request)["visits"] = 1
    response = response_to(request, "1")
    response.set_cookie("seen", "1")
    return response


def hidden(request):
    """A read that no companion can notice."""
    environ = vars(request)["META"] if hasattr(request, "META") else vars(request._get_current_object())["environ"]
    text = f"<p>Hello</p>\n<p>{dict.get(environ, 'HTTP_COOKIE', 'you')}</p>"
    return response_to(request, text)


def broken(request):
    raise ZeroDivisionError("in a view")


application = None


@pytest.fixture
def command(make_site, site_settings, monkeypatch):
    # The command keeps its process out of the figures.
    monkeypatch.setattr(publisher, "_is_silent", False)
    site = make_site(clock=SystemClock.steady, grace=30, fail_safe=5)
    monkeypatch.setattr(f"{__name__}.application", site.app)
    site_settings.WSGI_APPLICATION = f"{__name__}.{'unwrapped' if hasattr(site, 'scope') else 'application'}"
    if hasattr(site, "scope"):
        site_settings.ASGI_APPLICATION = f"{__name__}.application"
    for view in (address, counts, hidden, broken):
        site.add(f"/{view.__name__}", view)
    site.add("/agent", lambda request: request.headers.get("User-Agent"))
    site.add("/page", lambda request: query_of(request).get("page"))
    site.add("/theme", lambda request: cookies_of(request).get("theme"))
    site.add("/visitor", lambda request: session_of(request).get("name"))
    site.add("/now", lambda request: "now", None)

    def command(*given):
        """Return the lines of the output. A failure is an error with its message."""
        if not hasattr(site, "flask"):
            call_command("wheelcache", *given, stdout=(out := StringIO()))
            return out.getvalue().splitlines()
        done = site.flask.test_cli_runner().invoke(wheelcache, given)
        if done.exit_code:
            raise CommandError(done.output)
        return done.output.splitlines()

    command.site, command.base = site, "http://localhost" if hasattr(site, "flask") else "http://example.com"
    yield command
    assert publisher._is_silent


def unwrapped(environ, start_response):
    start_response("200 OK", [])
    return [b"page"]


def test_the_code_that_reads_the_address_is_named(command):
    answer = command("why", "/address")
    assert answer[0] == f"GET {command.base}/address: 200 OK."
    assert answer[1].startswith("The page is not stored: reads REMOTE_ADDR. The application read the address")
    assert "ignore_reads_by" in answer[2]
    assert f"  REMOTE_ADDR: {FILE}, line {line_of(FILE, 'REMOTE_ADDR')}, in address" in answer
    document = json.loads("".join(command("why", "/address", "--json")))
    assert (document["status"], document["is_stored"], document["explanation"][:3]) == ("200 OK", False, answer[:3])
    # A page that is not stored cannot be rehearsed.
    assert command("rehearsal", "--path", "/address")[:3] == answer[:3]


FLASK = tuple(map(int, version("flask").split(".")[:3]))
DEPENDENCIES = {"/agent": "the header User-Agent", "/theme": "the cookie theme", "/visitor": "(the session)"}


@pytest.mark.parametrize("target", DEPENDENCIES)
def test_the_parts_on_which_a_page_depends_are_named(command, target):
    answer = command("why", target, "--header", "Cookie: theme=dark", "--header", "User-Agent: Firefox")
    if target == "/visitor" and hasattr(command.site, "flask") and FLASK < (2, 3, 2):
        pytest.skip("An older Flask does not say in Vary that a page depends on the session.")
    (sentence,) = [line for line in answer if line.startswith("It depends on ")]
    assert sentence.endswith(", and is stored once for each combination of their values.")
    assert DEPENDENCIES[target] in sentence
    assert target != "/visitor" or f"the cookie {command.site.session_cookie} " in sentence


def test_a_stored_page_and_the_parameters_that_no_code_reads(command):
    lifetime = "It is fresh for 60 s. After that, visitors get it for 30 s while it is renewed (grace), and for 5 s if "
    answer = command("why", f"{command.base}/page?page=2&ref=x&utm_source=y")
    assert answer[1] == "The page is stored."
    assert answer[2].startswith(lifetime)
    assert "A second request was answered from the cache." in answer
    assert answer[-1] == (
        "The application did not read the query parameters ref, utm_source. If they never change the page, set "
        "ignore_query=['ref', *TRACKING]."
    )


def test_a_link_of_a_stranger_does_not_control_the_terminal(command):
    answer = "".join(command("why", "/page?%1B%5D0;evil%07=1"))
    assert "\\x1b]0;evil\\x07" in answer
    assert "\x1b" not in answer


def test_the_code_that_writes_the_session_and_sets_a_cookie_is_named(command):
    answer = command("why", "/counts")
    assert answer[1].startswith("The page is not stored: sets cookie")
    place = answer.index("The application wrote these keys of the session and these cookies:")
    assert answer[place + 1 : place + 3] == [
        f"  session visits: {FILE}, line {line_of(FILE, 'visits')}, in counts",
        f"  cookie seen: {FILE}, line {line_of(FILE, 'set_cookie')}, in counts",
    ]


@pytest.mark.parametrize("make_site", ["Django on ASGI", "Flask"], indirect=True)
def test_a_path_is_rehearsed_for_a_visitor(command):
    visitor = ("--header", "Cookie: name=ada")
    assert command("rehearsal", "--path", "/hidden", *visitor) == [
        "wrong: hidden, /hidden, line 2",
        "  stored:  <p>you</p>",
        "  visitor: <p>name=ada</p>",
    ]


@pytest.mark.parametrize("make_site", ["Django on WSGI", "Flask"], indirect=True)
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["why", "/broken"], "ZeroDivisionError: in a view"),
        (["why", "ftp://example.com/"], "url must be a URL of http or https"),
        (["why", "/page", "--header", "theme"], "--header must be like 'Accept-Language: de', not 'theme'."),
    ],
)
def test_an_exception_of_the_application_and_a_wrong_argument_are_reported(command, given, complaint):
    command("why", "/now")
    with pytest.raises(CommandError, match=complaint.replace(".", r"\.")):
        command(*given)
