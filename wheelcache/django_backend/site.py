"""The site that this process is one of: its name, and where its processes publish their figures."""

from __future__ import annotations

import sys
from pathlib import Path

from django.conf import settings

from wheelcache.figures_directory import directory_of


def site_name() -> str:
    """The settings module; "settings" where they are in none."""
    return str(getattr(settings, "SETTINGS_MODULE", None) or "settings")


def figures_directory() -> Path | None:
    """Where figures are published unless FIGURES_DIR says where: the same for all processes with these settings."""
    module = sys.modules.get(site_name())
    return directory_of(f"django {site_name()} {getattr(module, '__file__', None)}")
