"""``{% load wheelcache %}``: Django's ``{% cache %}``, with tags for ``delete_tags``."""

from __future__ import annotations

from typing import Any, cast

from django.core.cache import InvalidCacheBackendError, caches
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.utils import make_template_fragment_key
from django.template import Library, TemplateSyntaxError
from django.template.base import FilterExpression, Parser, Token
from django.template.context import Context
from django.templatetags.cache import CacheNode, do_cache

from wheelcache.django_backend.backend import WheelCache
from wheelcache.engine import options

register = Library()


class TaggedFragment(CacheNode):
    """A fragment that is stored with tags."""

    def __init__(self, untagged: CacheNode, tags: FilterExpression) -> None:
        vars(self).update(vars(untagged))
        self.tags = tags

    def render(self, context: Context) -> str:
        cache = self._cache(context)
        timeout = self.expire_time_var.resolve(context)
        if timeout is not None:
            try:
                timeout = int(timeout)
            except (TypeError, ValueError):
                raise TemplateSyntaxError(f'"cache" tag got a non-integer timeout value: {timeout!r}') from None
        key = make_template_fragment_key(self.fragment_name, [each.resolve(context) for each in self.vary_on])
        value = cache.get(key)
        if value is None:
            # A variable that does not exist is None here, not an empty string: the fragment would have no tags.
            tags = self.tags.resolve(context, ignore_failures=True)
            tags = options.tags("tags", tags.split(",") if isinstance(tags, str) else tags)
            value = self.nodelist.render(context)
            if not isinstance(cache, DummyCache):
                cache.set(key, value, timeout, tags=tags)
        return cast("str", value)

    def _cache(self, context: Context) -> Any:
        alias = self.cache_name.resolve(context) if self.cache_name else "template_fragments"
        try:
            cache = caches[alias]
        except InvalidCacheBackendError:
            if self.cache_name:
                raise TemplateSyntaxError(f"Invalid cache name specified for cache tag: {alias!r}") from None
            cache = caches["default"]
        if not isinstance(cache, (WheelCache, DummyCache)):
            raise TemplateSyntaxError(
                f'the tags of "cache {self.fragment_name}" need a WheelCache, and its cache is a {type(cache).__name__}'
            )
        return cache


@register.tag("cache")
def cache(parser: Parser, token: Token) -> CacheNode:
    """Cache the content of a template fragment, as Django's tag of this name does, with tags.

    Usage::

        {% load wheelcache %}
        {% cache 600 sidebar user.id tags=sidebar_tags %} ... {% endcache %}

    ``tags=`` comes after the arguments that are part of the key. It is an iterable of strings, or one string with
    commas between the tags.
    """
    parts = token.split_contents()
    given = [part for part in parts[3:] if part.startswith("tags=")]
    if not given:
        return do_cache(parser, token)
    if given != [part for part in parts[3:] if not part.startswith("using=")][-1:]:
        raise TemplateSyntaxError('"cache" tag takes tags= once, after the arguments that are part of the key')
    tags = parser.compile_filter(given[0].removeprefix("tags="))
    token.contents = " ".join(part for part in parts if part is not given[0])
    return TaggedFragment(do_cache(parser, token), tags)
