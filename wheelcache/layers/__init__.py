"""The layers under the adapters of the frameworks: entries in memory, and copies of the entries of a store.

An adapter translates the calls of a framework once, to *final* keys and raw values. A final key is the text under which
the entry, the copy and the value in the store are known; a tuple of it if the framework may warn of the key, so that no
copy is kept; or a tuple ``(group, *arguments)`` of a memoized function. Values go down raw and come up encoded: the
store has a serializer of its own, and each caller decodes a copy of its own.

An operation returns its result, or *steps* to it if it may wait for a store or for another caller: ``drive`` and
``drive_async`` take both.
"""
