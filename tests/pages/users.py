"""An application whose pages show their user, in every way in which a page depends on one."""

import random

OWN_HEADER = {"/authorization": "authorization", "/forwarded": "x-forwarded-host"}
"""The request header that names the user, by path; Cookie for the other paths."""

PATHS = ["/vary", "/notes", "/private", "/set", "/refused", *OWN_HEADER]


def respond(path, headers, notes):
    """The response headers and the user that a page shows."""
    user = headers.get(OWN_HEADER.get(path, "cookie"), "nobody")
    lasting = {"cache-control": "max-age=60"}
    if path == "/vary":
        lasting["vary"] = "Cookie"
    elif path == "/private":
        lasting["cache-control"] = "private, max-age=60"
    elif path == "/set":
        lasting["set-cookie"] = user
    elif notes is not None:
        if path == "/notes":
            notes.vary_on(cookies=["user"])
        elif path == "/refused":
            notes.refuse("user")
    return lasting, user


def requests(number):
    """Requests of two users in a random order: pairs of a path, and headers, of which the only one names the user."""
    chance = random.Random(1)
    return [
        (path, {OWN_HEADER.get(path, "cookie"): chance.choice(["user=alice", "user=bob"])})
        for path in chance.choices(PATHS, k=number)
    ]
