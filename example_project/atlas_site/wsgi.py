import os

from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

from wheelcache.pages.django_pages import COMPANION, page_cache

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "atlas_site.settings")

application = StaticFilesHandler(get_wsgi_application())
if COMPANION in settings.MIDDLEWARE:
    application = page_cache().wsgi(application)
