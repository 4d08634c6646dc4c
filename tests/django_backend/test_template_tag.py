"""``{% load wheelcache %}{% cache 600 sidebar tags=... %}``."""

import pytest
from django.core.cache import caches
from django.template import Context, Engine, TemplateSyntaxError
from django.test import override_settings

from tests.django_backend.conftest import BACKEND, DUMMY, LOCMEM
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def site():
    names = ("default", "template_fragments", "other")
    settings = {name: {"BACKEND": BACKEND, "LOCATION": f"fragments {name}", "KEY_PREFIX": name} for name in names}
    others = {"memory": {"BACKEND": LOCMEM}, "dummy": {"BACKEND": DUMMY}}
    with override_settings(CACHES={**settings, **others}):
        yield settings


def render(arguments, **context):
    engine = Engine(libraries={"wheelcache": "wheelcache.django_backend.templatetags.wheelcache"})
    template = engine.from_string("{% load wheelcache %}{% cache " + arguments + " %}{{ text }}{% endcache %}")
    return template.render(Context(context))


@pytest.mark.parametrize(
    ("tags", "given"),
    [
        *(("tags=tags", each) for each in (["user:7", "menu"], {"menu"}, "menu")),
        *((f"tags={each}", None) for each in ('"menu"', '"user:7,menu"', 'user.tags|default:"menu"')),
        *((each, None) for each in ('tags="menu" using="other"', 'using="other" tags="menu"')),
    ],
)
def test_a_fragment_leaves_with_its_tags(tags, given):
    for user in (1, 2):
        assert render(f"600 sidebar user {tags}", text="old", user=user, tags=given) == "old"
    for name in ("template_fragments", "other"):
        caches[name].delete_tags("another")
    assert render(f"600 sidebar user {tags}", text="new", user=1, tags=given) == "old"
    caches["other" if "using" in tags else "template_fragments"].delete_tags("menu")
    assert render(f"600 sidebar user {tags}", text="new", user=1, tags=given) == "new"
    assert render(f"600 sidebar user {tags}", text="newer", user=2, tags=given) == "newer"


def test_the_key_and_a_fragment_without_tags_are_those_of_django():
    assert render('600 sidebar user tags="menu"', text="old", user=1) == "old"
    assert render("600 sidebar user", text="new", user=1) == "old"
    assert render("600 sidebar user", text="other", user=2) == "other"


@pytest.mark.parametrize(("timeout", "left"), [("600", 600), ('"60"', 60), ("None", None)])
def test_the_timeout_is_that_of_the_tag(timeout, left):
    render(f'{timeout} sidebar tags="menu" using="other"', text="old")
    (key,) = caches["other"].keys("*")
    assert caches["other"].ttl(key) == (left and pytest.approx(left, rel=0.1))


def test_a_fragment_that_was_rendered_while_a_tag_was_dropped_is_not_kept(in_thread):
    class Text:
        def __str__(self):
            in_thread(caches["template_fragments"].delete_tags, "menu").result(PATIENCE)
            return "old"

    assert render('600 sidebar tags="menu"', text=Text()) == "old"
    assert render('600 sidebar tags="menu"', text="new") == "new"


def test_the_default_cache_is_used_where_there_is_none_for_fragments(site):
    with override_settings(CACHES={"default": site["default"]}):
        assert render('600 sidebar tags="menu"', text="old") == "old"
        caches["default"].delete_tags("menu")
        assert render('600 sidebar tags="menu"', text="new") == "new"


def test_a_dummy_cache_keeps_nothing():
    assert [render('600 sidebar tags="menu" using="dummy"', text=text) for text in "ab"] == ["a", "b"]


MALFORMED = {
    '600 sidebar tags="menu" using="memory"': 'tags of "cache sidebar" need a Wh.*LocMem',
    '600 sidebar tags="menu" using="none"': "Invalid cache name .* cache tag: 'none'",
    '"soon" sidebar tags="menu"': "non-integer timeout value: 'soon'",
    '600 sidebar tags="menu" user': "takes tags= once, after the arguments",
    '600 sidebar tags="menu" tags="other"': "takes tags= once",
}


@pytest.mark.parametrize(("arguments", "words"), MALFORMED.items())
def test_wrong_arguments_are_errors(arguments, words):
    with pytest.raises(TemplateSyntaxError, match=words):
        render(arguments)


# A variable that does not exist is not an empty string.
@pytest.mark.parametrize("tags", ["no", "number", '""', '"a,,b"'])
def test_wrong_tags_are_errors(tags):
    with pytest.raises((TypeError, ValueError), match="64 non-empty strings"):
        render(f"600 sidebar tags={tags}", number=7)
