"""The tables of ``make mutants`` fit the package and the tests. ``tests.mutants`` applies them."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import tables

ROOT = Path(__file__).parents[1]
TABLES = tables()


def test_each_mutant_breaks_another_rule():
    times = Counter(mutant.rule for rows in TABLES.values() for mutant in rows)
    assert [rule for rule, number in times.items() if number > 1] == []


@pytest.mark.parametrize("folder", TABLES)
def test_each_mutant_changes_one_place_and_names_a_test(folder):
    for mutant in TABLES[folder]:
        assert (ROOT / "wheelcache" / mutant.file).read_text().count(mutant.old) == 1, mutant
        assert mutant.old != mutant.new
        file, _, test = mutant.test.partition("::")
        assert f"def {test.rpartition('::')[2].partition('[')[0]}(" in (ROOT / file).read_text(), mutant
