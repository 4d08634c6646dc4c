"""Strangers write request headers, and applications copy them into responses: every parser takes linear time.

A quadratic parser needs minutes for the fields of 64 kB in these tests, and the linear ones half a second for all of
them. So the bound is wide enough for any machine.
"""

from time import thread_time

import pytest

from wheelcache.engine import options
from wheelcache.pages import rules
from wheelcache.pages.headers import delta_seconds, directives, http_date, members

pytestmark = pytest.mark.deep

SIZE = 64 * 1024
SECONDS = 5

PIECES = [
    *(
        b'\\"',
        b'"\\',
        b'"',
        b"\\",
        b",",
        b'",',
        b'="',
        b"=",
        b" ",
        b" ,",
        b"a",
        b"0",
        b"a,",
        b'a="\\",',
        b'W/"',
        b'"x"',
    ),
    *(b";a", b"; ", b"a;b=", b"(", b"( ", b"(a ", b"a=(a b);c,", b"\t,", b"1.", b'a="\\\\",', b":", b"%", b"?0"),
    *(b"bytes=0", b"Tue, ", b" GMT", b"\xff", b"max-age=1+", b"Tue, 14 Nov 2023 "),
]


@pytest.mark.alone
@pytest.mark.parametrize("start", [b"", b'"', b'a="', b"a=(", b"max-age=", b"bytes=", b'W/"a'], ids=repr)
def test_every_parser_is_linear(start):
    before = thread_time()
    for piece in PIECES:
        value = start + piece * (SIZE // len(piece)) + b"!"
        members([value])
        directives([value])
        options.cache_tags([value.decode("latin-1")])
        delta_seconds(value)
        http_date(value, 0)
        names = (
            b"cache-control",
            b"clear-site-data",
            b"vary",
            b"etag",
            b"last-modified",
            b"content-length",
            b"set-cookie",
        )
        headers = [(name, value) for name in (*names, b"cdn-cache-control", b"surrogate-control", b"age", b"expires")]
        response = rules.Response(200, headers)
        next(rules.refusals(response, authorized=True), None)
        rules.freshness(response, wall=0, seconds=0)
        rules.is_not_modified(headers, value, value, 0)
        rules.byte_range(headers, 10, value, value)
    assert thread_time() - before < SECONDS


@pytest.mark.alone
def test_an_unfinished_quoted_string_is_read_once():
    # 24 kB took 10 s, because the pattern started again at each of its quotes.
    before = thread_time()
    assert directives([b'"' + b'\\"' * 12_000 + b"\\"]).keys() == {b'"' + b'\\"' * 12_000 + b"\\"}
    assert thread_time() - before < SECONDS


LONG = b"max-age=0, only-if-cached" + b" " * 4096


def test_an_oversized_request_header_is_not_parsed():
    headers = [(b"etag", b'"a"'), (b"last-modified", b"Tue, 14 Nov 2023 22:13:20 GMT")]
    assert rules.request_directives(LONG) == {}
    assert not rules.is_not_modified(headers, b'"a"' + b',"b"' * 2000, None, 2_000_000_000)
    assert not rules.is_not_modified(headers, b'"a"' + b',"b"' * 2000, headers[1][1], 2_000_000_000)
    assert rules.byte_range(headers, 10, b"bytes=0-1" + b" " * 4096, None) is None


@pytest.mark.parametrize("value", [b"only-if-cached", b"max-age=0, only-if-cached"])
def test_the_directives_of_a_request(value):
    assert b"only-if-cached" in rules.request_directives(value)
    assert rules.request_directives(None) == {}
