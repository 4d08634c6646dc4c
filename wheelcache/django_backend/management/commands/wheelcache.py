"""``manage.py wheelcache``, which is a command of ``watch``."""

from wheelcache.engine.guests import module_of

Command = module_of("watch", "django_command").Command
