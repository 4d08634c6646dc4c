"""Pairs instead of products: which cases of a test with several arguments run.

Nearly every fault depends on the value of one argument or on those of two (D. R. Kuhn, D. R. Wallace, A. M. Gallo,
"Software Fault Interactions and Implications for Software Testing", 2004). A product has hundreds of cases; a few of
them contain each pair of values.

The cases are chosen among those that pytest has made, whether their values come from fixtures or from parametrized
arguments. A combination that a test leaves out stays out. allpairspy would need a second description of each product.
"""

from collections import Counter
from itertools import chain, combinations


def covering(cases, full=(), of=()):
    """Return the numbers of the cases to run, in order.

    Args:
        cases: the values of the arguments of each case, by name.
        full: the names of arguments. All cases with the first value of each of these run.
        of: the names of the arguments of which each pair of values must occur; by default all. If there is one name,
            each of its values must occur among the cases that ``full`` does not select.
    """
    first, numbers = cases[0], range(len(cases))
    chosen = [number for number in numbers if full and all(cases[number][name] == first[name] for name in full)]
    others = [number for number in numbers if number not in chosen]
    size = min(2, len(of or first))
    parts = [{*combinations([(name, case[name]) for name in of or case], size)} for case in cases]
    missing = set().union(*(parts[number] for number in others))
    if size == 2:
        missing.difference_update(*(parts[number] for number in chosen))
    used = Counter()

    def gain(number):
        """Prefer the case with the most missing pairs, then the one whose values occur least."""
        return len(parts[number] & missing), -sum(used[value] for value in cases[number].items())

    while missing:
        best = max(others, key=gain)
        chosen.append(best)
        missing -= parts[best]
        used.update(cases[best].items())
    return sorted(chosen)


def select(items):
    """Remove the cases of tests with the marker ``pairs`` that need not run. Return these."""
    by_test = {}
    for item in items:
        if (marker := item.get_closest_marker("pairs")) and hasattr(item, "callspec"):
            given = {key: names.split(", ") for key, names in marker.kwargs.items()}
            # A marker of a module is for the tests that have these arguments.
            if item.callspec.params.keys() >= {*chain(*given.values())}:
                by_test.setdefault((item.parent, item.originalname), (given, []))[1].append(item)
    removed = []
    for given, tests in by_test.values():
        cases = [{name: _key(value) for name, value in test.callspec.params.items()} for test in tests]
        kept = covering(cases, **given)
        removed += [test for number, test in enumerate(tests) if number not in kept]
    left_out = {id(test) for test in removed}
    items[:] = [item for item in items if id(item) not in left_out]
    return removed


def _key(value):
    """Return a key of a value, which may have no hash or equal another one, as 1 and True do."""
    return value if isinstance(value, str) else id(value)
