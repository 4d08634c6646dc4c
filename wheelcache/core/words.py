"""Words of 64 bits in a buffer."""

from __future__ import annotations

from array import array


def exchange_word(words: memoryview | array[int], index: int, word: int) -> int:
    """Put ``word`` into a buffer of 64-bit words, and return the word that it replaces.

    Only the compiled core does this in one step. Here, a write by another thread may come in between.
    """
    before: int = words[index]
    words[index] = word
    return before
