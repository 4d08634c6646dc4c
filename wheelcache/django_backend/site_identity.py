"""The site that this process is one of: its name, and where its processes publish their figures."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac

from wheelcache.observability.figures_directory import directory_of


def site_name() -> str:
    """The settings module; "settings" where they are in none."""
    return str(getattr(settings, "SETTINGS_MODULE", None) or "settings")


def figures_directory() -> Path | None:
    """Where figures are published unless FIGURES_DIR says where: the same for all processes of the site.

    By its settings module, its base directory and its SECRET_KEY, if it has one. Two sites of a host may well share the
    first and the last: one project, installed twice. A deploy into another directory makes another site of it.
    """
    site = f"{site_name()} {_base_directory()}"
    try:
        return directory_of(salted_hmac("wheelcache.figures", site, algorithm="sha256").hexdigest())
    except ImproperlyConfigured:
        return directory_of(f"django {site}")


def _base_directory() -> Path:
    """BASE_DIR, or where the settings module is, without links; the working directory where there is neither."""
    base = getattr(settings, "BASE_DIR", None)
    if isinstance(base, str | os.PathLike):
        return Path(base).resolve()
    file = getattr(sys.modules.get(site_name()), "__file__", None)
    return Path.cwd() if file is None else Path(file).resolve().parent
