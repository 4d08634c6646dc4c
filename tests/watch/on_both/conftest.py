from contextlib import ExitStack

import pytest

from tests.backends.conftest import *  # noqa: F403
from tests.watch.on_both.dashboard_sites import SITES


@pytest.fixture(params=SITES.values(), ids=SITES)
def make_site(request, tmp_path):
    """Make a site with an entry and a dashboard, which all users may operate unless they are granted other rights."""
    with ExitStack() as stack:

        def make(figures_dir=tmp_path / "figures", **options):
            site = request.param(stack, figures_dir, **options)
            site.cache.set("k", "v")
            return site

        yield make


@pytest.fixture
def site(make_site):
    return make_site()
