"""Settings of caches, and a function that counts its calls."""

from itertools import count

WHEEL = "wheelcache.django_backend.WheelCache"

TIERED = "wheelcache.django_backend.TieredCache"

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"

DUMMY = "django.core.cache.backends.dummy.DummyCache"

_locations = map("memoize {}".format, count())


def wheel(**params):
    options = {"JITTER": 0, **params.pop("OPTIONS", {})}
    return {"BACKEND": WHEEL, "LOCATION": next(_locations), "OPTIONS": options, **params}


def locmem():
    return {"BACKEND": LOCMEM, "LOCATION": next(_locations)}


def tiered():
    return {"BACKEND": TIERED, "LOCATION": next(_locations), "OPTIONS": {"L2": "second"}}


class Counted:
    """A function that counts its calls."""

    __qualname__ = "Counted"

    def __init__(self, value=None):
        self.calls = []
        self.value = value

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return [len(self.calls)] if self.value is None else self.value
