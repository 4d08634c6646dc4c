"""The client of an ASGI response that is recorded. It may read slowly, or not at all.

While a response is recorded, other requests wait for its page, so the application must not wait for the client: its
messages are kept, and a task sends them. As soon as the response is no longer recorded, each message waits for those
before it, and for the client. So code after the last message runs when the client has received the response, as without
a cache, and a response that is too long is never kept as a whole. If there is no room for the unsent bytes (see
``StoredPages.keep_unsent``), the message waits in the same way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from wheelcache.pages.rehearsed import Rehearsed
from wheelcache.pages.run import Run

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

BURST: Final = 1 << 16
"""Unsent bytes."""


class RecordedClient:
    """The client of a run.

    Args:
        send: sends a message to the client, and waits until the server accepts the next one.
    """

    def __init__(self, run: Run | Rehearsed, send: Send) -> None:
        self._run = run
        self._send = send
        self._unsent: deque[Message] = deque()
        self._unsent_size = 0
        self._task: asyncio.Task[None] | None = None
        # A message was not sent. Without it, the later ones would be another response.
        self._is_lost = False

    async def send(self, message: Message) -> None:
        """Send a message after the earlier ones. While the response is recorded, do not wait for the client."""
        run, size = self._run, _size(message)
        if run.is_recording and run.has_client and not self._is_lost and (not size or run.keep_unsent(size)):
            self._unsent.append(message)
            self._unsent_size += size
            # The beginning of a response is sent with the first piece of its body, as the ASGI specification demands.
            if message["type"] != "http.response.start":
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._send_unsent())
                if self._unsent_size >= BURST:
                    # The application may never wait for anything: let the task run.
                    await asyncio.sleep(0)
            return
        await self.flush()
        if self._is_lost:
            if not self._run_goes_on and message.get("more_body", False):
                # Nobody needs the rest, which may have no end.
                raise OSError("the client has disconnected")
            return
        try:
            await self._send(message)
        except OSError:
            # Servers may raise this if the client has disconnected. The run goes on for the page.
            if not self._run_goes_on:
                raise
            self._is_lost = True

    @property
    def _run_goes_on(self) -> bool:
        """Whether the run goes on without its client."""
        return self._run.is_recording and self._run.outlives_its_client

    async def flush(self) -> None:
        """Wait until the client has received all messages. Raise the server's exception for one of them."""
        if self._task is not None and not self._task.cancelled():
            try:
                # If this is cancelled, so is the task.
                await self._task
            finally:
                self._task = None
        await self._send_unsent()

    def close(self) -> None:
        """Drop the messages that are left after the cancellation of the run, or after a failure."""
        self._unsent.clear()
        if self._unsent_size:
            self._run.sent(self._unsent_size)
            self._unsent_size = 0
        if self._task is not None and not self._task.cancel() and not self._task.cancelled():
            # Otherwise, asyncio would log an exception of the server.
            self._task.exception()

    async def _send_unsent(self) -> None:
        try:
            while self._unsent and not self._is_lost:
                message = self._unsent[0]
                await self._send(message)
                self._unsent.popleft()
                size = _size(message)
                self._unsent_size -= size
                self._run.sent(size)
        except OSError:
            self._is_lost = True
        except BaseException:
            self._is_lost = True
            raise


def _size(message: Message) -> int:
    return len(message.get("body", b""))
