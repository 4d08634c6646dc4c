"""``entry_removed``, a Django signal for every entry that leaves a cache of ``CACHES`` in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.dispatch import Signal

from wheelcache.core.contract import RemovalCause
from wheelcache.django_backend import stores
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.stores import Store

OnRemoval = Callable[[Any, Any, RemovalCause], object]


class EntryRemoved(Signal):
    """Sent for every entry that leaves; for a ``TieredCache``, for every copy.

    Receivers get:
        sender: ``WheelCache`` or ``TieredCache``.
        location: the LOCATION of the cache.
        key: the complete key, with prefix and version.
        cause: a ``RemovalCause``.

    The thread that removes the entry, a writing thread or the wheel thread, calls the receivers with no lock held. If
    one raises, the exception is logged to ``django.dispatch``, and the others are still called.

    Without receivers, the signal costs nothing: the caches have a listener only while there is a receiver.
    """

    def __init__(self) -> None:
        super().__init__()
        # If one receiver connects while another disconnects, the caches must end as the later of the two requires.
        self._attaching = threading.RLock()

    def connect(self, receiver: Any, *args: Any, **kwargs: Any) -> None:
        """Connect ``receiver``, as Django's signals do.

        Raises:
            TypeError: if ``receiver`` is a coroutine function. Entries leave in threads without an event loop.
        """
        if iscoroutinefunction(receiver):
            raise TypeError(f"receivers of entry_removed must not be coroutine functions, as {receiver!r} is")
        super().connect(receiver, *args, **kwargs)
        self._attach()

    def disconnect(self, *args: Any, **kwargs: Any) -> bool:
        disconnected = super().disconnect(*args, **kwargs)
        self.detach_if_deserted()
        return disconnected

    def _attach(self) -> None:
        with self._attaching:
            if self._listen not in stores.watchers:
                # First, so that a store that is made meanwhile gets its listener, here or below.
                stores.watchers.append(self._listen)
                for location, store in stores.stores_with_locations():
                    self._listen(location, store)

    def detach_if_deserted(self) -> None:
        """Remove the listeners if no receiver is left. Receivers are referenced weakly."""
        with self._attaching:
            self.has_listeners()
            if not self.receivers and self._listen in stores.watchers:
                stores.watchers.remove(self._listen)
                for _, store in stores.stores_with_locations():
                    listener = store.cache.on_removal
                    if isinstance(listener, _Listener):
                        store.cache.on_removal = listener.before

    def _listen(self, location: str, store: Store) -> None:
        """Send the signal for removals from a store. A second call has no effect."""
        with self._attaching:
            before = store.cache.on_removal
            if self._listen in stores.watchers and not isinstance(before, _Listener):
                store.cache.on_removal = _Listener(location, store.sender or WheelCache, before)


entry_removed: Final = EntryRemoved()


class _Listener:
    """Sends the signal for one cache, and calls the previous listener, ``before``."""

    __slots__ = ("before", "location", "sender")

    def __init__(self, location: str, sender: type[WheelCache], before: OnRemoval | None) -> None:
        self.location = location
        self.sender = sender
        self.before = before

    def __call__(self, key: Any, value: Any, cause: RemovalCause) -> None:
        if entry_removed.has_listeners(self.sender):
            # Django warns of keys that are in a tuple.
            cache_key = key[0] if isinstance(key, tuple) else key
            entry_removed.send_robust(self.sender, location=self.location, key=cache_key, cause=cause)
        else:
            entry_removed.detach_if_deserted()
        if self.before is not None:
            self.before(key, value, cause)
