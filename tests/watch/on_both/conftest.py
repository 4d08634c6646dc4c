from contextlib import ExitStack

import pytest

from tests.backends.conftest import *  # noqa: F403
from tests.watch.on_both.dashboard_sites import SITES


@pytest.fixture(params=SITES.values(), ids=SITES)
def make_site(request):
    """Make a site with a dashboard that all users may operate: ``make_site(figures_dir)``."""
    with ExitStack() as stack:
        yield lambda *args, **options: request.param(stack, *args, **options)
