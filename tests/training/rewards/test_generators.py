"""Several generators for rewards: one draws for a row, and everything names it."""

import asyncio

from assets.core.profile import load_profile
from schemas.curation import CRITIC_RL, CriticRlRow, Evaluation
from schemas.trajectories import ATTEMPTS
from tests.assets.curation.curated_world import World
from tests.training.rewards.reward_world import EXACT, QUICK, FaultyGenerator, answer
from tests.warehouse.conftest import attempt
from training.rewards.critic import ASSIGNED, assign_generators, generators_of_rows, images_so_far

ROWS = [f"row-{number}" for number in range(40)]
PEN, BRUSH = FaultyGenerator("pen"), FaultyGenerator("brush")
NAMES = ["pen/1", "brush/1"]


def write_row(home, row_id: str, drawn_by: str) -> None:
    """A row of `critic_rl`, and the attempt that it judges."""
    step = {"trajectory_id": "t", "prompt_id": "p", "step_number": 1, "iteration": 0}
    empty = dict.fromkeys(["rewritten_prompt", "origin_image", "edited_image"], "")
    row = CriticRlRow(
        **(step | empty),
        row_id=row_id,
        copy_number=0,
        origin_prompt=EXACT,
        evaluation=Evaluation(success=True, semantics=9, quality=9),
        messages=[],
        agent_prompt_version="critic@1",
    )
    home.lake.write(CRITIC_RL, [row])
    home.lake.write(ATTEMPTS, [attempt(0, **step, generator=drawn_by)], "shard-0000")


def test_rows_are_shared_by_a_hash_of_row_and_seed():
    first = assign_generators(NAMES, ROWS, 0, {})
    assert assign_generators(NAMES, reversed(ROWS), 0, {}) == first
    assert assign_generators(NAMES, ROWS, 1, {}) != first
    assert 10 < sum(name == "pen/1" for name in first.values()) < 30


def test_who_drew_a_rows_picture_draws_again_if_it_is_named():
    drew = dict.fromkeys(ROWS[:20], "brush/1") | dict.fromkeys(ROWS[20:], "another/1")
    assigned = assign_generators(NAMES, ROWS, 0, drew)
    assert {assigned[row] for row in ROWS[:20]} == {"brush/1"}
    assert {assigned[row] for row in ROWS[20:]} == set(NAMES)


def test_a_resumed_training_asks_the_same_whatever_the_lake_holds(home, tmp_path):
    by_hash = assign_generators(NAMES, ["row-1"], 0, {})["row-1"]
    (other,) = set(NAMES) - {by_hash}
    write_row(home, "row-1", drawn_by=other)
    chosen = generators_of_rows([PEN, BRUSH], ["row-1"], 0, home, tmp_path)
    assert f"{chosen('row-1').backend}/1" == other
    write_row(home, "row-1", drawn_by="another/1")
    assert generators_of_rows([PEN, BRUSH], ROWS, 0, home, tmp_path)("row-1") is chosen("row-1")
    (tmp_path / ASSIGNED).unlink()
    forgotten = generators_of_rows([PEN, BRUSH], ROWS, 0, home, tmp_path)
    assert f"{forgotten('row-1').backend}/1" == by_hash


def test_the_images_before_a_step_are_inputs_and_chosen_ones(home):
    trajectories = World(home)
    trajectories.add("s", [(3, False), (9, True)], [(9, True)], [(9, True)], input_images=2)
    trajectories.write()
    given = trajectories.rows["prompts"][0].input_images
    attempts = {(row.step_number, row.iteration): row for row in trajectories.rows["attempts"]}
    found = images_so_far(home, ["s-run/1/1", "s-run/3/0", "other-run/1/0"])
    chosen = [attempts[1, 1].image, attempts[2, 0].image]
    assert found == {"s-run/1/1": tuple(given), "s-run/3/0": (*given, *chosen)}
    assert found["s-run/3/0"][-1] == attempts[3, 0].source_image


def test_one_generator_needs_no_choice(home, tmp_path):
    assert generators_of_rows([PEN], [], 0, home, tmp_path)("any row") is PEN
    assert not list(tmp_path.glob(ASSIGNED))


def test_a_profiles_backends_have_a_generator_each(home, tmp_path):
    profile = load_profile("gpu")  # whose `roles` name images
    generators = [profile.of_backend("generator", name, home) for name in ("sketch", "images")]
    of_row = generators_of_rows(generators, ROWS, 0, home, tmp_path)
    assert {of_row(row).backend for row in ROWS} == {"sketch", "images"}


async def test_rollouts_and_ledger_name_who_drew(world):
    pen, brush = FaultyGenerator("pen"), FaultyGenerator("brush")
    by_row = {"row-1": pen, "row-2": brush}
    service = world.service(QUICK, generator_of=by_row.__getitem__)
    texts = [answer(False, EXACT), answer(False, EXACT), answer(True), answer(False, "broken")]
    rows = await asyncio.gather(
        *(service.reward(world.request(text, row=row)) for row in by_row for text in texts)
    )
    named = [(row.row_id, row.generator) for row in rows]
    for row, name in (("row-1", "pen/1"), ("row-2", "brush/1")):
        # Accepting draws nothing; a drawing that failed was still asked for.
        assert [who for which, who in named if which == row] == [name, name, None, name]
    assert len(pen.calls) == len(brush.calls) == 2, "a prompt is drawn once by each"
    assert {call.backend for call in world.ledger() if call.role == "generator"} == {"pen", "brush"}
