"""Responses that a cache cannot read, and their comparison with those of a site without the cache."""

import re

CONTENT_TYPES = [
    "application/octet-stream; charset=binary",
    "image/png; charset=binary",
    *(
        f"text/html; charset={name}"
        for name in (
            *("bogus", "hex", "idna", "punycode", "rot13", "base64", "undefined", "unicode_escape", "utf-7", "utf-16"),
            *("cp037", "mbcs", "8bit", "../utf_8", '"utf-8"', '"', "", "a\x00b", "\xe9", "\u017c", "x" * 5000),
        )
    ),
    "text/html; charset=utf-8; charset=bogus",
    "text/html;CHARSET=Bogus, text/plain;charset=utf-16",
    "multipart/mixed; boundary=x; charset=hex",
    *("text", ";;=;", ""),
]


def comparable(response):
    """Return the parts of a response that are the same with and without the cache, unless it has a token and is stored:
    the status, the headers, the cookies without their times, and the body without its tokens."""
    headers = {name: value for name, value in response.headers.items() if name not in ("age", "cache-status")}
    cookies = re.sub("expires=[^;]*", "", headers.pop("set-cookie", ""), flags=re.IGNORECASE).strip()
    return response.status, headers, cookies, re.sub(rb"[a-zA-Z0-9]{64}", b"token", response.body)
