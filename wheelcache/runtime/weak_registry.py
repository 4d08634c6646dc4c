"""The objects that are alive, without keeping them so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class WeakRegistry(Generic[T]):
    """Objects held weakly, listed in the order they came.

    Unlike ``weakref.WeakSet`` it may be listed in one thread while another adds: the listing is one C call, so it needs
    no lock, which matters because it runs in fork handlers and in the wheel thread.
    """

    def __init__(self) -> None:
        self._refs: dict[int, ref[T]] = {}

    def add(self, item: T) -> None:
        identity = id(item)
        refs = self._refs
        refs[identity] = ref(item, lambda _: refs.pop(identity, None))

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._refs.values()):
            item = reference()
            if item is not None:
                yield item
