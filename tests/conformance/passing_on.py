"""Applications that pass every request on to the server at ``ORIGIN``, behind an HTTPCache with default options.

All headers of the origin are passed on, also Connection and Transfer-Encoding, which the cache must cope with.
"""

import asyncio
import os
from http.client import HTTPConnection, responses

from wheelcache.pages import HTTPCache

ORIGIN = os.environ["ORIGIN"]


def answer_of_origin(method, target, headers, body):
    connection = HTTPConnection(ORIGIN)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.getheaders(), response.read()
    finally:
        connection.close()


def wsgi(environ, start_response):
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower(), value)
        for name, value in environ.items()
        if value and (name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH"))
    ]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    target = environ["PATH_INFO"] + "?" * bool(environ["QUERY_STRING"]) + environ["QUERY_STRING"]
    status, received, content = answer_of_origin(environ["REQUEST_METHOD"], target, headers, body)
    start_response(f"{status} {responses.get(status, 'Unknown')}", received)
    return [content]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    target = scope["raw_path"] + b"?" * bool(scope["query_string"]) + scope["query_string"]
    status, received, content = await asyncio.to_thread(
        answer_of_origin, scope["method"], target.decode("latin-1"), scope["headers"], body
    )
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in received]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


pages = HTTPCache()
cached_wsgi = pages.wsgi(wsgi)
cached_asgi = pages.asgi(asgi)
