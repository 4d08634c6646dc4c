#!/usr/bin/env python
"""Runs the commands of the example site: ``migrate``, ``import_cities``, ``runserver``, ``visit``, ``demo``."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "atlas_site.settings")
    execute_from_command_line(sys.argv)
