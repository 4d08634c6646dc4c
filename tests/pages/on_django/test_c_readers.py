"""Code that reads a part of a request past its methods makes no page for other visitors."""

import pytest

from tests.pages.c_readers import READERS, assert_that_each_visitor_gets_the_own_theme


@pytest.mark.parametrize(("part", "how"), READERS)
def test_code_that_reads_a_part_as_a_whole_makes_no_page_for_another_visitor(site, part, how):
    assert_that_each_visitor_gets_the_own_theme(site, part, how)
