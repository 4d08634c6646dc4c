"""The site that this process is one of: its name, and where its processes publish their figures."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.utils.crypto import salted_hmac

from wheelcache.figures_directory import directory_of


def site_name() -> str:
    """The settings module; "settings" where they are in none."""
    return str(getattr(settings, "SETTINGS_MODULE", None) or "settings")


def figures_directory() -> Path | None:
    """Where figures are published unless FIGURES_DIR says where: the same for all processes of the site.

    By its SECRET_KEY, and not by where it lies: a deploy may put it elsewhere, and a link may lead there.
    """
    return directory_of(salted_hmac("wheelcache.figures", site_name(), algorithm="sha256").hexdigest())
