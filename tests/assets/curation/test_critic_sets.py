"""Rows of critic_sft and critic_rl: inputs, targets, and attempts that are dropped."""

import json

import pyarrow as pa

from assets.curation.critic_sets import build_critic_rl, build_critic_sft, build_wrong_verdicts
from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from inference.agent_prompts.templates import critic_prompt
from schemas.curation import CRITIC_SFT, STEPS
from tests.assets.curation.curated_world import AS_IS, World, curate, records


def settings(theta: float = 100.0, **critic) -> CurationSettings:
    """Unbalanced and, by default, all SFT."""
    return CurationSettings(split={"theta": theta}, critic={**AS_IS, **critic})


def sft(world: World, options: CurationSettings | None = None) -> tuple[list[dict], dict, list]:
    options = options or settings()
    home = curate(world.write(), options, STEPS)
    rows, dropped, verdicts = build_critic_sft(home, options)
    return records(rows), dropped, verdicts


def rl(world: World, options: CurationSettings | None = None) -> list[dict]:
    options = options or settings(theta=0)
    return records(build_critic_rl(curate(world.write(), options, STEPS), options)[0])


def answer(row: dict) -> dict:
    return json.loads(row["messages"][1]["content"].split("<answer>")[1].removesuffix("</answer>"))


def test_a_row_per_attempt_up_to_the_best_has_its_state_and_the_teachers_answer(world):
    world.add("s", [(2, False), (9, True)], [(9, True)])
    rows, *_ = sft(world)
    attempts, images = world.rows["attempts"], world.home.images
    assert [(r["step_number"], r["iteration"], r["accepted"]) for r in rows] == [
        (1, 0, False),
        (1, 1, True),
        (2, 0, True),
    ]
    made_by = [("draw s 1", ""), ("draw s 1", "try 1.1"), ("draw s 2", "")]
    asked = [row["messages"][0]["content"] for row in rows]
    assert asked == [critic_prompt(*each).text for each in made_by], "iteration 0: the plan's own"
    assert [row["images"][1] for row in rows] == [a.image for a in attempts]
    assert rows[2]["images"][0] == attempts[1].image, "the accepted image of the step before"
    canvas = images.get(rows[0]["images"][0]).image
    assert canvas.getcolors() == [(256, (255, 255, 255))], "white, in the size of the first image"
    assert {row["agent_prompt_version"] for row in rows} == {"critic@1"}
    assert answer(rows[0]) == {"previous_step_success": False, "refine_prompt": "try 1.1"}
    assert answer(rows[1]) == {"previous_step_success": True, "refine_prompt": ""}
    assert rows[0]["messages"][1]["content"].startswith("<think>looks wrong</think>")


def test_attempts_after_the_best_are_not_used(world):
    world.add("s", [(2, False), (9, False), (7.5, False), (7.5, False)])
    rows, *_ = sft(world, settings(verdicts={"sft": "critic", "unproven_rewrites": True}))
    assert [r["iteration"] for r in rows] == [0, 1]


def test_attempts_that_teach_something_wrong_are_dropped_by_their_reason(world):
    world.add("a", [(5, True)], [(9.7, False), (9.8, True)])
    world.add("b", [(5, False), (7, False), (6, False)])
    world.add("c", [(5, False), (9, True)])
    attempts = world.rows["attempts"]
    attempts[-2] = attempts[-2].model_copy(update={"refined_prompt": "  "})
    rows, dropped, _ = sft(world)
    used = [(r["prompt_id"], r["step_number"], r["iteration"]) for r in rows]
    assert used == [("a", 2, 1), ("b", 1, 0), ("c", 1, 1)]
    assert dropped == {"contradicted_verdict": 2, "no_rewrite": 1, "unproven_rewrite": 1}


def test_rl_rows_have_the_state_and_the_true_verdict(world):
    world.add("s", [(2, False), (9, True)])
    rows = rl(world)
    attempts = world.rows["attempts"]
    assert [row["rewritten_prompt"] for row in rows] == ["", "try 1.1"]
    assert {row["origin_prompt"] for row in rows} == {"draw s 1"}
    assert [row["edited_image"] for row in rows] == [a.image for a in attempts]
    assert rows[0]["evaluation"] == {"success": False, "semantics": 2, "quality": 2}
    assert rows[1]["evaluation"] == {"success": True, "semantics": 9, "quality": 9}
    assert [len(row["messages"]) for row in rows] == [1, 1]


def test_rl_verdict_comes_from_scores_or_critic(world):
    world.add("s", [(5.5, True), (9, True)])
    wanted = {"scores": [False, True], "critic": [True, True], "drop": [True]}
    for source, verdicts in wanted.items():
        rows = rl(world, settings(theta=0, verdicts={"rl": source}))
        assert [row["evaluation"]["success"] for row in rows] == verdicts


def test_wrong_verdicts_are_found_in_all_attempts_and_neither_balanced_nor_repeated(world):
    world.add("s", [(5.5, True), (9, True), (9.8, False)], [(9, True)])
    options = CurationSettings(split={"theta": 0})
    steps = records(build_steps(world.write(), options)[0])
    uncut = [{**step, "split": "rl", "best_iteration": step["iterations"] - 1} for step in steps]
    table = pa.Table.from_pylist(uncut, schema=STEPS.arrow_schema)
    rows = records(build_wrong_verdicts(world.home, options, table)[0])
    verdicts = [(row["iteration"], row["evaluation"]["success"]) for row in rows]
    assert verdicts == [(0, False), (2, True)]


def test_every_train_prompt_is_in_one_set_and_no_held_out_prompt_in_any(world):
    for number in range(30):
        rise = number % 7
        chain = [(9 - rise, False), (9, True)] if rise else [(9, True)]
        split = ("train", "train", "train", "heldout", "heldout_category")[number % 5]
        world.add(f"s{number}", chain, [(9, True)], [(4, False), (9, True)], split=split)
    options = CurationSettings(critic=AS_IS)
    home = curate(world.write(), options, STEPS)
    sft_prompts = {r["prompt_id"] for r in records(build_critic_sft(home, options)[0])}
    rl_prompts = {r["prompt_id"] for r in records(build_critic_rl(home, options)[0])}
    train = {row.prompt_id for row in world.rows["prompts"] if row.split == "train"}
    assert sft_prompts and rl_prompts
    assert not sft_prompts & rl_prompts
    assert sft_prompts | rl_prompts == train


def test_verdicts_are_balanced_per_iteration(world):
    for number in range(6):
        world.add(f"s{number}", [(9, True)], [(2, False), (9, True)], [(9, True)])
    options = CurationSettings(split={"theta": 100})
    rows, _, verdicts = sft(world, options)
    assert len(rows) == 24
    first = verdicts[0]
    assert (first["accepted_before"], first["rejected_before"]) == (12, 6)
    assert (first["accepted_after"], first["rejected_after"]) == (12, 12)
    assert len({row["row_id"] for row in rows}) == 24
    assert max(row["copy_number"] for row in rows) == 1


def test_an_empty_lake_gives_empty_sets(world):
    rows, dropped, verdicts = build_critic_sft(world.home, CurationSettings())
    assert world.home.lake.write(CRITIC_SFT, rows).rows == 0
    assert (dropped, verdicts) == ({}, [])
