"""Which cases of a hunt are varied: those with outcomes that few boots produced."""

import random
from collections import Counter

from numalab.hunt.case import Case
from numalab.hunt.direction.corpus import BranchOutcome, Corpus, boot_outcomes, target_lines
from unit.hunt.direction.counted import boot, line

FILE = "kernel/sched/fair.c"


def corpus_of(case: Case, *boots: tuple[int, int]) -> Corpus:
    """Return a corpus of boots that took both ways of one branch so often."""
    corpus = Corpus()
    for number, ways in enumerate(boots):
        corpus.add(number, case, boot(line(5, "function", sum(ways), ways)))
    return corpus


def test_the_outcomes_of_a_boot() -> None:
    outcomes = boot_outcomes(boot(line(5, "added", 3, (3, 0)), line(6, "added", 0, (0, 0))))
    assert outcomes.produced == {BranchOutcome(FILE, 5, -1, True), BranchOutcome(FILE, 5, 0, True)}
    assert outcomes.missed == {BranchOutcome(FILE, 5, 0, False)}, (
        "a branch that did not run misses none"
    )


def test_a_case_with_a_rare_outcome_has_most_energy(drawn_case: Case) -> None:
    corpus = corpus_of(drawn_case, (9, 0), (9, 0), (9, 1), (9, 0))
    energies = [corpus.energy(item) for item in corpus.cases]
    assert energies[0] == energies[1] == energies[3] == 1 / 4 + 1 / 4
    assert energies[2] == 1 / 4 + 1 / 4 + 1


def test_a_branch_that_always_went_one_way_gives_energy_to_the_cases_that_run_it(
    drawn_case: Case,
) -> None:
    corpus = corpus_of(drawn_case, (9, 0), (0, 0))
    first, second = (corpus.energy(item) for item in corpus.cases)
    assert first == 1 + 1 + 2
    assert second == 0


def test_outcomes_of_changed_lines_count_more(drawn_case: Case) -> None:
    corpus = Corpus()
    corpus.add(0, drawn_case, boot(line(5, "added", 1), line(9, "function", 0)))
    corpus.add(1, drawn_case, boot(line(5, "added", 0), line(9, "function", 1)))
    first, second = (corpus.energy(item) for item in corpus.cases)
    assert first == 4 * second


def test_a_corpus_knows_whether_a_changed_line_has_run(drawn_case: Case) -> None:
    corpus = Corpus()
    assert not corpus.has_run
    corpus.add(0, drawn_case, boot(line(5, "added", 0), line(9, "function", 3)))
    assert not corpus.has_run
    corpus.add(1, drawn_case, boot(line(5, "added", 1), line(9, "function", 3)))
    assert corpus.has_run


def test_lines_beside_a_change_that_only_removes_are_its_target() -> None:
    near, far = line(5, "context", 1), line(6, "function", 1)
    assert target_lines(boot(near, far)) == (near,)
    assert target_lines(boot(near, line(7, "added"))) == (line(7, "added"),)


def test_energy_falls_with_each_choice_so_that_others_come_too(drawn_case: Case) -> None:
    corpus = corpus_of(drawn_case, (9, 1), (9, 0), (9, 0))
    chosen = Counter(corpus.choose(random.Random(place)).number for place in range(60))
    assert set(chosen) == {0, 1, 2}
    assert chosen[0] > chosen[1]
    assert corpus.chosen == chosen


def test_a_corpus_keeps_the_cases_with_most_energy(drawn_case: Case) -> None:
    corpus = corpus_of(drawn_case, (0, 1), *[(9, 0)] * 80)
    assert len(corpus.cases) < 80
    assert corpus.cases[0].number == 0
