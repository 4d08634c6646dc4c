"""The contract of the tags that the views of a framework give to their pages.

``/tagged/<tag>`` adds a tag, or assigns it if it is "assigned"; its header adds "all" and "pages". ``/not-stored`` has
tags, but no lifetime.
"""


class PageTags:
    def test_a_page_is_purged_by_the_tags_that_its_view_added_and_by_those_of_its_header(self, site):
        for tag in ("one", "all", "pages"):
            answers = [site.get("/tagged/one"), site.get("/tagged/one")]
            assert answers[0].body == answers[1].body
            other = site.get("/tagged/two").body
            site.cache.delete_tags(tag)
            answers.append(site.get("/tagged/one"))
            assert answers[2].body != answers[1].body
            assert (site.get("/tagged/two").body == other) == (tag == "one")
            assert {answer.headers.get("cache-tag") for answer in answers} == {None}

    def test_a_view_may_assign_its_tags(self, site):
        page = site.get("/tagged/assigned").body
        assert site.get("/tagged/assigned").body == page
        site.cache.delete_tags("assigned")
        assert site.get("/tagged/assigned").body != page

    def test_a_view_whose_pages_are_not_stored_may_have_tags_as_well(self, site):
        answers = [site.get("/not-stored", method=method) for method in ("GET", "GET", "GET", "HEAD", "POST")]
        assert {answer.headers.get("cache-tag") for answer in answers} == {None}
        assert [answer.status for answer in answers[:4]] == [200] * 4
