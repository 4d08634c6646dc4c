"""``manage.py wheelcache``, which is a command of ``watch``."""

from wheelcache.engine.guests import needed_module

Command = needed_module("watch", "django_command", "manage.py wheelcache").Command
