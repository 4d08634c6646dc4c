"""The site that this process is one of: its name, and where its processes publish their figures."""

from __future__ import annotations

import sys
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac

from wheelcache.figures_directory import directory_of


def site_name() -> str:
    """The settings module; "settings" where they are in none."""
    return str(getattr(settings, "SETTINGS_MODULE", None) or "settings")


def figures_directory() -> Path | None:
    """Where figures are published unless FIGURES_DIR says where: the same for all processes of the site.

    By its SECRET_KEY, if it has one, and not by its place: a deploy may put it elsewhere, and a link may lead there.
    """
    try:
        site = salted_hmac("wheelcache.figures", site_name(), algorithm="sha256").hexdigest()
    except ImproperlyConfigured:
        module = sys.modules.get(site_name())
        site = f"django {Path(getattr(module, '__file__', None) or site_name()).resolve()}"
    return directory_of(site)
