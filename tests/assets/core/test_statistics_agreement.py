"""Agreement, kappa and intervals, by hand."""

import pytest

from assets.core.statistics import Agreement, agreement, kappa_interval, sampled

# Cohen's textbook form: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no.
PAIRS = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
FIRST = {number: pair[0] for number, pair in enumerate(PAIRS)}
SECOND = {number: pair[1] for number, pair in enumerate(PAIRS)}


def test_agreement_and_kappa_by_hand() -> None:
    found = agreement(FIRST, SECOND)
    assert found and found.share and found.kappa
    assert found.share.mean == 0.7
    assert found.kappa.mean == pytest.approx(0.4)  # (0.7 - 0.5) / (1 - 0.5)
    assert found.unscored == 0
    # The asymptotic standard error is about 0.13, so the interval is about 0.4 +- 0.25.
    assert found.kappa.low == pytest.approx(0.15, abs=0.05)
    assert found.kappa.high == pytest.approx(0.65, abs=0.05)
    assert agreement(FIRST, SECOND) == found
    assert agreement(FIRST, SECOND, seed=1) != found


def test_unscored_cases_are_counted_and_never_compared() -> None:
    found = agreement({**FIRST, 50: "yes", 51: None}, {**SECOND, 50: None, 51: "no", 99: "yes"})
    assert found and found.share and found.share.count == 50
    assert (found.cases, found.unscored) == (52, 2 / 52)
    assert agreement({1: None}, {1: "yes"}) == Agreement(1, 1.0)
    assert agreement({1: "yes"}, {2: "yes"}) is None


def test_kappa_needs_two_labels() -> None:
    assert kappa_interval([("yes", "yes")] * 5) is None
    perfect = kappa_interval([("yes", "yes"), ("no", "no")] * 20)
    assert perfect and (perfect.low, perfect.mean, perfect.high) == (1, 1, 1)


def test_two_judges_on_a_sample() -> None:
    cases = sampled(list(FIRST), 20, seed=3)
    assert cases == sorted(set(cases)) == sampled(list(FIRST), 20, seed=3)
    assert len(cases) == 20 and sampled(list(FIRST), 99) == sampled(list(FIRST), None)
    found = agreement({case: FIRST[case] for case in cases}, SECOND)
    assert found and found.share
    assert found.differing == [case for case in cases if FIRST[case] != SECOND[case]]
    assert found.share.mean == pytest.approx(1 - len(found.differing) / 20)
