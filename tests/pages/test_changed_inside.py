"""Which parts of a request middleware between the cache and the framework has changed: see ``on_both.test_inside``."""

import pytest

from wheelcache.pages.inside import ALWAYS_READ, compare
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.watched import SOME_COOKIES, Watch

GIVEN = {
    "wsgi.url_scheme": "http",
    "HTTP_HOST": "inner:8000",
    "SCRIPT_NAME": "",
    "PATH_INFO": "/app/a",
    "HTTP_X_FORWARDED_HOST": "a.example:8443, b.example",
    "HTTP_FORWARDED": 'for=x;proto="https"',
    "HTTP_X_FORWARDED_PREFIX": "/app/",
    "HTTP_COOKIE": "a=1; b=2",
}


@pytest.mark.parametrize(
    ("seen", "changed"),
    [
        ({}, set()),
        ({"wsgi.url_scheme": "https"}, set()),
        ({"wsgi.url_scheme": "ftp"}, {"wsgi.url_scheme"}),
        *(({"HTTP_HOST": host}, set()) for host in ("A.example", "a.example:8443", "b.example", "inner", "inner:8443")),
        *(({"HTTP_HOST": host}, {"HTTP_HOST"}) for host in ("c.example", "a.example:1", "inner:1", "example")),
        ({"SCRIPT_NAME": "/app", "PATH_INFO": "/a"}, set()),
        ({"SCRIPT_NAME": "/app"}, set()),
        ({"SCRIPT_NAME": "/app/a", "PATH_INFO": "/"}, set()),
        ({"SCRIPT_NAME": "/app", "PATH_INFO": "/b"}, {"SCRIPT_NAME", "PATH_INFO"}),
        ({"SCRIPT_NAME": "/other"}, {"SCRIPT_NAME"}),
        *(({"CONTENT_LENGTH": length}, set()) for length in ("", "0")),
        *(({name: "1"}, {name}) for name in ("CONTENT_LENGTH", "QUERY_STRING", "HTTP_X_COUNTRY")),
        ({"HTTP_COOKIE": "a=1; b=3"}, {"HTTP_COOKIE", "cookie b"}),
        ({"HTTP_COOKIE": ""}, {"HTTP_COOKIE", "cookie a", "cookie b", SOME_COOKIES}),
        # Objects of the server may have any equality.
        ({"wsgi.input": 1}, {"wsgi.input"}),
    ],
)
def test_a_change_counts_unless_the_key_of_the_page_explains_it(seen, changed):
    watch = Watch(PageNotes(), (), {})
    compare(watch, GIVEN, GIVEN | seen)
    assert watch.changed == changed
    # Those that are in each key, or that frameworks read before they can be watched.
    assert bool(watch.notes.refusals) == (not changed.isdisjoint(ALWAYS_READ))
