import pytest

from tests.django_backend.conftest import *  # noqa: F403
from tests.near_cache.tiers import TierOnDjango, made_tiers


@pytest.fixture
def tier(trackings):
    """``tier(kind, place, behind={settings}, **options)``"""
    with made_tiers(trackings) as make:
        yield lambda *args, **options: make(TierOnDjango, *args, **options)
