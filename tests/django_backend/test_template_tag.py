"""``{% load wheelcache %}{% cache 600 sidebar tags=... %}``."""

import pytest
from django.core.cache import caches
from django.template import Context, Engine, TemplateSyntaxError
from django.test import override_settings

from tests.guests import needs
from tests.waiting import PATIENCE

pytestmark = pytest.mark.pairs(full="site", of="site")

KINDS = {"WheelCache": {}, "TieredCache": {"L2": "memory"}}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
DUMMY = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}


@pytest.fixture(autouse=True, params=["WheelCache", pytest.param("TieredCache", marks=needs("near_cache"))])
def site(request):
    names = ("default", "template_fragments", "other")
    kind = {
        "BACKEND": f"wheelcache.django_backend.{request.param}",
        "OPTIONS": {**KINDS[request.param]},
    }
    settings = {name: {**kind, "LOCATION": f"fragments {name}", "KEY_PREFIX": name} for name in names}
    with override_settings(CACHES={**settings, "memory": LOCMEM, "dummy": DUMMY}):
        yield settings
        for name in names:
            caches[name].clear()


def render(arguments, **context):
    engine = Engine(libraries={"wheelcache": "wheelcache.django_backend.templatetags.wheelcache"})
    template = engine.from_string("{% load wheelcache %}{% cache " + arguments + " %}{{ text }}{% endcache %}")
    return template.render(Context(context))


@pytest.mark.parametrize(
    ("tags", "given"),
    [
        ("tags=tags", ["user:7", "menu"]),
        ("tags=tags", {"menu"}),
        ("tags=tags", "menu"),
        ('tags="menu"', None),
        ('tags="user:7,menu"', None),
        ('tags="menu" using="other"', None),
        ('using="other" tags="menu"', None),
        ('tags=user.tags|default:"menu"', None),
    ],
)
def test_a_fragment_leaves_with_its_tags(tags, given):
    for user in (1, 2):
        assert render(f"600 sidebar user {tags}", text="old", user=user, tags=given) == "old"
        assert render(f"600 sidebar user {tags}", text="new", user=user, tags=given) == "old"
    for name in ("template_fragments", "other"):
        caches[name].delete_tags("another")
    assert render(f"600 sidebar user {tags}", text="new", user=1, tags=given) == "old"
    caches["other" if "using" in tags else "template_fragments"].delete_tags("menu")
    assert render(f"600 sidebar user {tags}", text="new", user=1, tags=given) == "new"
    assert render(f"600 sidebar user {tags}", text="newer", user=2, tags=given) == "newer"


def test_a_fragment_without_tags_is_that_of_django():
    assert render("600 sidebar", text="old") == "old"
    assert render("600 sidebar user", text="other", user=1) == "other"
    assert render("600 sidebar", text="new") == "old"


def test_the_key_is_that_of_django():
    assert render('600 sidebar user tags="menu"', text="old", user=1) == "old"
    assert render("600 sidebar user", text="new", user=1) == "old"


def test_a_fragment_that_was_rendered_while_a_tag_was_dropped_is_not_kept(in_thread):
    class Text:
        def __str__(self):
            in_thread(caches["template_fragments"].delete_tags, "menu").result(PATIENCE)
            return "old"

    assert render('600 sidebar tags="menu"', text=Text()) == "old"
    assert render('600 sidebar tags="menu"', text="new") == "new"


def test_the_default_cache_is_used_where_there_is_none_for_fragments(site):
    with override_settings(CACHES={"default": site["default"], "memory": LOCMEM}):
        assert render('600 sidebar tags="menu"', text="old") == "old"
        caches["default"].delete_tags("menu")
        assert render('600 sidebar tags="menu"', text="new") == "new"


def test_a_dummy_cache_keeps_nothing():
    assert [render('600 sidebar tags="menu" using="dummy"', text=text) for text in "ab"] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('600 sidebar tags="menu" using="memory"', 'the tags of "cache sidebar" need a WheelCache.*LocMemCache'),
        ('600 sidebar tags="menu" using="none"', "Invalid cache name specified for cache tag: 'none'"),
        ('"soon" sidebar tags="menu"', "non-integer timeout value: 'soon'"),
        ('600 sidebar tags="menu" user', "takes tags= once, after the arguments"),
        ('600 sidebar tags="menu" tags="other"', "takes tags= once"),
    ],
)
def test_wrong_arguments_are_errors_of_the_template(arguments, words):
    with pytest.raises(TemplateSyntaxError, match=words):
        render(arguments)


@pytest.mark.parametrize(
    ("tags", "error"), [("missing", TypeError), ("number", TypeError), ('""', ValueError), ('"a,,b"', ValueError)]
)
def test_wrong_tags_are_errors_also_if_the_variable_does_not_exist(tags, error):
    with pytest.raises(error, match="tags must be an iterable of at most 64 non-empty strings"):
        render(f"600 sidebar tags={tags}", number=7)
