"""Results of a look-up that are kept for one thread and context, in Python and compiled."""

from contextvars import copy_context
from types import SimpleNamespace

import pytest

from tests.core.cores import COMPILED
from wheelcache.core import context_memo


@pytest.fixture(params=[COMPILED, "python"])
def twin(request):
    """The module of an implementation."""
    if request.param == "python":
        return context_memo
    return pytest.importorskip("wheelcache.core._core")


@pytest.fixture
def memo(twin):
    return twin.ContextMemo()


def look_up(memo, name, value=7):
    return memo.look_up(name, lambda asked: value, (int,))


def test_a_result_of_the_right_kind_is_kept_by_name(memo):
    assert memo.find("one") is None
    assert (look_up(memo, "one"), look_up(memo, "two", 8)) == (7, 8)
    assert (memo.find("one"), memo.find("two"), memo.find(1)) == (7, 8, None)
    assert (look_up(memo, "text", "text"), look_up(memo, 1)) == ("text", 7)
    assert memo.find("text") is memo.find(1) is None
    memo.forget()
    assert memo.find("one") is None


def test_another_thread_finds_nothing_in_a_copied_context_and_keeps_its_own(memo, in_thread):
    look_up(memo, "one")
    context = copy_context()
    assert context.run(memo.find, "one") == 7

    def in_other_thread():
        found = memo.find("one")
        look_up(memo, "two", 8)
        return found, memo.find("one"), memo.find("two")

    assert in_thread(context.run, in_other_thread).result() == (None, None, 8)
    assert (memo.find("one"), memo.find("two")) == (7, None)


def test_what_is_found_while_everything_is_forgotten_is_not_kept(memo):
    look_up(memo, "one")
    assert memo.look_up("two", lambda name: memo.forget_everywhere() or 8, (int,)) == 8
    assert memo.find("one") is memo.find("two") is None


def test_an_attribute_of_a_kept_object_is_read_and_its_lack_is_an_attribute_error(twin, memo):
    class Proxy:
        attribute = twin.KeptAttribute(memo, "one", "attribute")

        def __getattr__(self, name):
            return f"not kept: {name}"

    assert type(Proxy.attribute) is twin.KeptAttribute
    assert Proxy().attribute == "not kept: attribute"
    memo.look_up("one", lambda name: SimpleNamespace(attribute=5), (SimpleNamespace,))
    assert Proxy().attribute == 5
