"""Under ASGI, a client that does not read holds up neither the application nor the visitors who want its page."""

import asyncio

import pytest

from tests.pages.site import AsgiSite, go_on, maker
from wheelcache.pages.local_requests import receive_of_nobody

START = "http.response.start"
PIECE = b"x" * 1000
PIECES = [b"%d," % number + PIECE for number in range(30)]
BODY = b"".join(PIECES)
SIZE = len(BODY)


class StreamingSite(AsgiSite):
    """An ASGI site whose application sends a body in pieces.

    Attributes:
        pieces: a list of the pieces, or of an exception that the application raises.
        headers: of the response.
        made: the pieces that the application has sent or sends.
    """

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.pieces = PIECES
        self.headers = [(b"cache-control", b"max-age=60")]
        self.made = []

    async def application(self, scope, receive, send):
        self.requests.append(scope["path"])
        await send({"type": START, "status": 200, "headers": self.headers})
        for number, piece in enumerate(self.pieces):
            self.made.append(piece)
            if isinstance(piece, Exception):
                raise piece
            more = number + 1 < len(self.pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            # As for the next row of a database.
            await asyncio.sleep(0)


class Client:
    """A client that reads nothing before ``read`` is called, behind a server that waits for it in each message.

    Attributes:
        received: the messages that it has read.
        error: raised by the server instead, once the client is to read.
    """

    def __init__(self, site, target="/", headers=()):
        self.received = []
        self.error = None
        self._may_read = asyncio.Event()
        scope = site.scope(*site.parts(target, headers)[:4])
        self.task = asyncio.ensure_future(site.app(scope, receive_of_nobody(), self._send))

    async def _send(self, message):
        await self._may_read.wait()
        if self.error is not None:
            raise self.error
        self.received.append(message)

    def read(self):
        self._may_read.set()

    @property
    def body(self):
        assert [message["type"] for message in self.received].count(START) == (1 if self.received else 0)
        return b"".join(message.get("body", b"") for message in self.received)

    @property
    def is_complete(self):
        return not self.received[-1].get("more_body", False)


@pytest.fixture
def site(request, clock, closed):
    """A site with the options of an indirect parameter. At the end, no byte is counted as unsent."""
    site = maker(StreamingSite, clock, closed)(**getattr(request, "param", {}))
    yield site
    site.cache.purge_all()
    assert site.cache.cache.stats().weight == 0


@pytest.mark.pairs
@pytest.mark.parametrize("length", [None, SIZE])
@pytest.mark.parametrize("pieces", [PIECES, [BODY]])
@pytest.mark.parametrize("condition", [{}, {"If-None-Match": '"1"'}])
async def test_a_visitor_does_not_wait_for_a_client_that_does_not_read(site, length, pieces, condition):
    site.pieces = pieces
    site.headers.append((b"etag", b'"1"'))
    if length is not None:
        site.headers.append((b"content-length", b"%d" % length))
    client = Client(site, headers=condition)
    await go_on()
    assert (await site.ask_async(*site.parts())).body == BODY
    assert (site.runs, client.received) == (1, [])
    client.read()
    await client.task
    assert (client.body, client.is_complete) == (b"" if condition else BODY, True)
    assert client.received[0]["status"] == (304 if condition else 200)


@pytest.mark.parametrize("site", [{"max_body": 5000}], indirect=True)
async def test_a_response_that_is_too_long_waits_for_its_client(site):
    client = Client(site)
    await go_on()
    # The first piece that does not fit shows it.
    assert len(b"".join(site.made[:-1])) <= 5000 < len(b"".join(site.made))
    client.read()
    await client.task
    assert (client.body, client.is_complete) == (BODY, True)
    assert site.stats().not_stored == {"max_body": 1}


@pytest.mark.parametrize("site", [{"max_bytes": 3 * SIZE}], indirect=True)
async def test_unsent_bytes_take_the_room_of_pages_and_at_most_half_of_it(site):
    limit, pages = 3 * SIZE, site.cache.cache

    async def begun(path):
        site.made = []
        client = Client(site, path)
        await go_on()
        assert pages.stats().weight <= limit
        return client, len(site.made)

    for path in ("/1", "/2"):
        await site.ask_async(*site.parts(path))
    of_pages = pages.stats().weight
    assert (len(pages), of_pages < limit) == (2, True)
    first, pieces = await begun("/3")
    assert (len(pages), pieces) == (1, len(PIECES))
    # The last piece is not kept.
    assert pages.stats().weight == of_pages // 2 + SIZE - len(PIECES[-1])
    second, pieces = await begun("/4")
    assert 0 < pieces < len(PIECES)
    # Its page is stored and sent nevertheless, as fast as the client reads.
    second.read()
    await second.task
    assert (second.body, site.stats().stored) == (BODY, 4)
    first.read()
    await first.task
    assert (first.body, pages.stats().weight) == (BODY, of_pages // 2)


@pytest.mark.parametrize(
    ("site", "lifetime", "most"), [({"max_body": 5000}, 60, 5), ({"rehearse": 1}, 0, 0)], indirect=["site"]
)
async def test_a_stream_that_is_not_stored_ends_when_its_client_has_left(site, lifetime, most):
    site.headers = [(b"cache-control", b"max-age=%d" % lifetime)]
    client = Client(site)
    client.error = OSError("the client has left")
    client.read()
    with pytest.raises(OSError, match="disconnected"):
        await client.task
    assert len(site.made) - 1 <= most


async def test_what_an_application_has_sent_before_it_fails_reaches_its_client(site):
    site.pieces = [b"a", b"b", ArithmeticError()]
    client = Client(site)
    await go_on()
    follower = asyncio.ensure_future(site.ask_async(*site.parts()))
    await go_on()
    # It did not wait for the client.
    assert site.runs == 2
    client.read()
    for task in (client.task, follower):
        with pytest.raises(ArithmeticError):
            await task
    assert (client.body, client.is_complete) == (b"ab", False)


async def test_an_error_of_the_server_reaches_the_application(site):
    client = Client(site)
    client.error = RuntimeError("wrong header")
    await go_on()
    client.read()
    with pytest.raises(RuntimeError, match="wrong header"):
        await client.task
    assert site.stats().stored == 1
