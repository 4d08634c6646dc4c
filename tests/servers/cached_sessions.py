"""Sessions of a Flask app in its cache, in the manner of CTFd: the interface uses a global variable of its module."""

import uuid

import flask_caching
from flask.sessions import SecureCookieSession, SessionInterface

cache = flask_caching.Cache()


class CachingSessionInterface(SessionInterface):
    def open_session(self, app, request):
        name = request.cookies.get("session", "")
        session = SecureCookieSession(cache.get(f"session{name}") or {})
        session.name = name or uuid.uuid4().hex
        return session

    def save_session(self, app, session, response):
        if session.modified:
            cache.set(f"session{session.name}", dict(session))
            response.set_cookie("session", session.name)
