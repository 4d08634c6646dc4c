"""Answers of a Django site, compared with the answers of the same site without a cache."""

import gzip
import re
from dataclasses import dataclass
from string import ascii_letters, digits

OTHERS = {"age", "cache-status", "connection", "content-length", "date", "expires", "server", "transfer-encoding"}
"""Headers that differ between two equal answers, or that the server or the cache writes."""
TOKEN = re.compile(r'(name="csrfmiddlewaretoken" value=")(\w{64})')


@dataclass
class Answer:
    """An answer to a visitor. Names of headers are in lower case."""

    status: int
    headers: list
    body: bytes

    @property
    def is_hit(self):
        """Return whether a stored page was the answer."""
        return "; hit" in dict(self.headers).get("cache-status", "")

    def shown(self, cookie):
        """Return the parts that must be those of the project without a cache, for a request with these cookies."""
        names = [name for name, _ in self.headers]
        text = (gzip.decompress(self.body) if "content-encoding" in names and self.body else self.body).decode()
        if self.status >= 400 and "DEBUG = True" in text:
            # The page shows the whole request and addresses of objects.
            return (self.status,)
        secrets = re.findall(r"csrftoken=(\w+)", f"{cookie} {self.headers}")
        # Each answer has another token, from which its visitor's secret can be computed.
        with_secrets = TOKEN.sub(lambda token: f"{token[1]}{unmasked(token[2]) in secrets}", text)
        compared = {*names} - OTHERS
        if with_secrets != text or any(value.lstrip().startswith("csrftoken=") for _, value in self.headers):
            # With a token, a stored page is private.
            compared -= {"etag", "cache-control"}
        headers = sorted((name, lasting(name, value)) for name, value in self.headers if name in compared)
        return self.status, headers, with_secrets


def lasting(name, value):
    """Return the part of a header that is the same in all equal answers."""
    if name == "vary":
        return sorted(value.lower().split(", "))
    return re.sub(r"(?i)(expires=[^;]*|^(csrftoken|sessionid)=\w+)", "", value)


def unmasked(token):
    """Return the secret in a token of CSRF protection, as Django does."""
    letters = ascii_letters + digits
    mask, cipher = ([*map(letters.index, part)] for part in (token[:32], token[32:]))
    return "".join(letters[one - other] for one, other in zip(cipher, mask, strict=True))


def cookies_of(answer):
    pairs = (value.partition(";")[0] for name, value in answer.headers if name == "set-cookie")
    return "; ".join(pair for pair in pairs if not pair.endswith('=""'))
