"""The table of ``make mutants`` fits the package. ``tests.mutants`` applies it."""

from pathlib import Path

from tests.mutants.table import MUTANTS

ROOT = Path(__file__).parents[1]


def test_each_mutant_breaks_another_promise():
    assert len({mutant.promise for mutant in MUTANTS}) == len(MUTANTS)


def test_each_mutant_changes_one_place_and_names_tests_that_exist():
    for mutant in MUTANTS:
        assert (ROOT / "wheelcache" / mutant.file).read_text().count(mutant.old) == 1, mutant
        assert mutant.old != mutant.new
        assert all((ROOT / test).exists() for test in mutant.tests), mutant
