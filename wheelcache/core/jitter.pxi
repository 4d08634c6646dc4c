# Jitter shortens TTLs, so that entries that were set together do not expire together.

from os import urandom

cdef struct Jitter:
    double share  # the largest part of a TTL that is cut off, from 0 to 1
    uint64_t state


cdef int seed_jitter(Jitter *jitter) except -1:
    jitter.state = int.from_bytes(urandom(8), "little") | 1
    return 0


cdef inline double drawn(Jitter *jitter) noexcept:
    """Return a number drawn evenly from [0, 1), by xorshift64*."""
    jitter.state ^= jitter.state >> 12
    jitter.state ^= jitter.state << 25
    jitter.state ^= jitter.state >> 27
    return <double>((jitter.state * <uint64_t>2685821657736338717) >> 11) / 9007199254740992.0


cdef inline double shortened(Jitter *jitter, double ttl, bint exact) noexcept:
    if exact or jitter.share == 0.0 or ttl == INFINITY:
        return ttl
    return ttl - min(ttl * jitter.share, MAX_JITTER) * drawn(jitter)
