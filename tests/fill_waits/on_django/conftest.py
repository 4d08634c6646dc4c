from tests.django_backend.conftest import *  # noqa: F403
