"""The settings that pytest-django gives Django in the process of the tests. Sites in other processes have their own."""

ALLOWED_HOSTS = ["testserver"]
CACHES = {"default": {"BACKEND": "wheelcache.django_backend.WheelCache"}}
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["django.contrib.sessions", "wheelcache.django_backend"]
# Logging belongs to the whole process, which runs the tests of the engine and of Flask, too.
LOGGING_CONFIG = None
ROOT_URLCONF = "tests.django_backend.test_sites"
SECRET_KEY = "not secret"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]
