"""cachelib's own tests, as they stand in its source distribution, for WheelCache, HostCache and TieredCache.

To be run by pytest with cachelib's ``tests`` folder as the working directory: ``common``, ``has``, ``clear``,
``serializer``, ``test_simple_cache`` and the ``conftest`` that they import are cachelib's.
"""

import pytest
import test_simple_cache
from cachelib import SimpleCache
from cachelib.serializers import BaseSerializer
from clear import ClearTests
from common import CommonTests
from delete_many_with_prefix import DeleteManyWithPrefixTests
from has import HasTests
from serializer import SerializerTests

from wheelcache.flask_backend import HostCache, TieredCache, WheelCache


class WithItsOwnSerializer(WheelCache):
    serializer = BaseSerializer()


class WithAPrefix(SimpleCache):
    def __init__(self, key_prefix="", **options):
        super().__init__(**options)
        self.key_prefix = key_prefix


@pytest.fixture(autouse=True, params=[WheelCache, WithItsOwnSerializer, HostCache])
def cache_factory(request, tmp_path_factory):
    def make(**options):
        # The tests expect that each cache has entries of its own.
        own = {"location": str(tmp_path_factory.mktemp("host"))} if request.param is HostCache else {}
        return request.param(**own, **options)

    request.cls.cache_factory = staticmethod(make)


class TestOwnEntries(CommonTests, HasTests, ClearTests, SerializerTests, DeleteManyWithPrefixTests):
    # The tests of SimpleCache that apply to any cache in memory. The others use its private attributes, or sleep as
    # long as CommonTests.
    test_delete_nonexistent_returns_false = test_simple_cache.TestSimpleCache.test_delete_nonexistent_returns_false
    test_concurrent_set_no_data_corruption = test_simple_cache.TestSimpleCache.test_concurrent_set_no_data_corruption
    test_concurrent_inc_is_consistent = test_simple_cache.TestSimpleCache.test_concurrent_inc_is_consistent
    test_concurrent_add_only_one_winner = test_simple_cache.TestSimpleCache.test_concurrent_add_only_one_winner
    test_concurrent_get_set = test_simple_cache.TestSimpleCache.test_concurrent_get_set_preserves_valid_shared_values


class TestTieredCache(CommonTests, HasTests, ClearTests, SerializerTests, DeleteManyWithPrefixTests):
    @pytest.fixture(autouse=True)
    def cache_factory(self, request):
        request.cls.cache_factory = staticmethod(lambda **options: TieredCache(WithAPrefix(**options)))
