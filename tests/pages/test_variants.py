"""The list of a page's variants, which requests use at the same time."""

from wheelcache.pages.variants import MOST_VARIANTS, Normalization, Variants


def listed(number=MOST_VARIANTS):
    variants = Variants(frozenset([b"user-agent"]), Normalization(), weight=0)
    return variants, [variants.add((f"browser {each}",)) for each in range(number)]


def test_a_hit_changes_the_order_of_use_and_not_the_list_that_another_thread_may_be_reading():
    variants, keys = listed()
    assert variants.find(("browser 0",)) == keys[0]
    assert variants.keys() == keys
    variants.add(("browser 2",))
    added = variants.add(("another",))
    # The first and the third were used more recently.
    assert variants.excess() == [keys[1]]
    assert {*variants.keys()} == {*keys, added} - {keys[1]}
