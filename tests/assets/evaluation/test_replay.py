"""Counterfactual replay: numbers on chains made by hand, and the command on a real home."""

import io

import pytest
from PIL import Image
from typer.testing import CliRunner

from assets.core.profile import load_profile
from assets.evaluation.items import StoredAttempt
from assets.evaluation.replay import (
    compare_with_record,
    measure_policy,
    recorded_chains,
    recorded_verdicts,
    replay_attempts,
    stopping_point,
    strict_verdicts,
)
from dagster_project.cli.app import app
from schemas import FoundryError
from schemas.trajectories import ATTEMPTS, MODEL_CALLS
from warehouse import Home

GOOD = 6.0


def chain(trajectory: str, *attempts: tuple[bool, float | None], t_max: int = 5):
    """A step whose attempts were accepted or not, with their grades."""
    return tuple(
        StoredAttempt(
            trajectory_id=trajectory,
            prompt_id=f"p-{trajectory}",
            shard="s-0000",
            step_number=1,
            iteration=number,
            goal="a red square",
            rewritten="",
            source_image=None,
            image="a" * 64,
            accepted=accepted,
            semantics=grade,
            quality=grade,
            overall=grade,
            t_max=t_max,
        )
        for number, (accepted, grade) in enumerate(attempts)
    )


# The critic rejects a good image, rejects a bad one, and accepts a bad one.
CHAINS = [
    chain("a", (False, 8.0), (True, 9.0)),
    chain("b", (False, 2.0), (True, 7.0)),
    chain("c", (True, 1.0)),
]


def test_a_policy_stops_at_the_first_attempt_that_it_accepts():
    verdicts = strict_verdicts(CHAINS, GOOD)
    assert [stopping_point(each, verdicts) for each in CHAINS] == [0, 1, None]
    assert [stopping_point(each, recorded_verdicts(CHAINS)) for each in CHAINS] == [1, 1, 0]


def test_draws_final_scores_and_accuracy_of_both_policies():
    record = measure_policy("record", CHAINS, recorded_verdicts(CHAINS), GOOD)
    assert record.draws.mean == pytest.approx(5 / 3)
    assert record.final and record.final.mean == pytest.approx((9 + 7 + 1) / 3)
    assert record.good_right and record.good_right.mean == pytest.approx(0.75)  # of request a: half
    assert record.bad_right and record.bad_right.mean == pytest.approx(0.5)
    assert record.open_steps.mean == 0
    strict = measure_policy("strict", CHAINS, strict_verdicts(CHAINS, GOOD), GOOD)
    assert strict.draws.mean == pytest.approx(4 / 3)
    assert strict.open_steps.mean == pytest.approx(1 / 3)  # c: nothing else was drawn
    assert strict.good_right and strict.good_right.mean == 1


def test_a_step_that_used_all_its_attempts_is_not_open():
    exhausted = [chain("d", (False, 1.0), (False, 2.0), t_max=2)]
    assert measure_policy("r", exhausted, recorded_verdicts(exhausted), GOOD).open_steps.mean == 0


def test_saved_and_wasted_draws():
    strict = compare_with_record(CHAINS, strict_verdicts(CHAINS, GOOD), GOOD)
    assert (strict.recorded, strict.saved, strict.too_early, strict.wasted) == (5, 1, 0, 0)
    record = compare_with_record(CHAINS, recorded_verdicts(CHAINS), GOOD)
    assert (record.saved, record.too_early, record.wasted) == (0, 0, 1)
    lenient = compare_with_record(CHAINS, strict_verdicts(CHAINS, 0), GOOD)
    assert (lenient.saved, lenient.too_early) == (1, 1)


def test_attempts_without_scores_have_no_accuracy_and_no_final_score():
    unscored = [chain("e", (True, None))]
    result = measure_policy("r", unscored, recorded_verdicts(unscored), GOOD)
    assert result.final is result.good_right is result.bad_right is None
    assert result.draws.mean == 1


def test_the_profiles_critic_repeats_its_verdicts_and_draws_nothing(sample_home: Home, tmp_path):
    report = replay_attempts(load_profile("sketch"), sample_home, "profile", scorer=True)
    attempts = sample_home.lake.rows(ATTEMPTS)
    (critic, changes), (scorer, _) = report.changes.items()
    assert changes.agreement.share and changes.agreement.share.mean == 1
    assert changes.recorded == attempts
    record, again, by_scorer = report.results
    assert (again.draws, again.final) == (record.draws, record.final)
    assert again.name == critic and by_scorer.name == scorer
    assert by_scorer.good_right and by_scorer.good_right.mean == 1
    assert Image.open(io.BytesIO(report.plot)).width > 500
    calls = sample_home.lake.read(MODEL_CALLS).to_pylist()
    made = [call for call in calls if call["asset"] == "replay"]
    assert {call["role"] for call in made} == {"critic", "scorer"}

    out = tmp_path / "plot.png"
    arguments = ["replay", "--critic", "profile", "--home", sample_home.root, "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "draws per step" in result.output and "kappa 1.000" in result.output
    assert out.read_bytes().startswith(b"\x89PNG")
    calls = sample_home.lake.read(MODEL_CALLS).to_pylist()
    assert sum(call["asset"] == "replay" for call in calls) == len(made), "none is made again"


def test_a_sample_of_trajectories_and_shards(sample_home: Home):
    all_chains = recorded_chains(sample_home)
    some = recorded_chains(sample_home, trajectories=3)
    assert len({each[0].trajectory_id for each in some}) == 3 < len(all_chains)
    shard = all_chains[0][0].shard
    assert {each[0].shard for each in recorded_chains(sample_home, [shard])} == {shard}


def test_mistakes_are_one_line(tmp_path):
    load_profile.cache_clear()
    with pytest.raises(FoundryError, match="no recorded attempts"):
        replay_attempts(load_profile("sketch"), Home(tmp_path))
