"""The service with the sketch world, and with a faulty generator."""

import asyncio

import pytest
from PIL import Image

from inference.roles import UnusableAnswerError
from schemas import FoundryError
from schemas.training import ROLLOUTS
from tests.training.rewards.reward_world import EXACT, GOAL, QUICK, WRONG, answer
from training.rewards.reward import Grades, RewardSettings, step_reward
from training.rewards.rollouts import (
    dev_figures,
    failed_share,
    right_shares,
    rollout_rows,
    step_figures,
)
from warehouse import EncodedImage

CODE = RewardSettings(form="code", draw_timeout_seconds=5, tries=1)


async def test_the_paper_redraws_rejections(world):
    service = world.service()
    row = await service.reward(world.request(answer(False, EXACT)))
    before = world.state(truth=False).grades
    assert row.status == "scored" and row.accuracy == 0
    assert row.step_reward == pytest.approx((10 - before.overall) / 10) and row.step_reward > 0.2
    assert row.reward == pytest.approx(0.5 + 0.5 * 0.8 * row.step_reward)
    assert world.home.images.get(row.image).image.size == (192, 192)
    row = await service.reward(world.request(answer(False, WRONG), truth=True))
    assert row.accuracy == -1 and row.step_reward < -0.2 and 0 <= row.reward < 0.3
    drawn = len(world.generator.calls)
    for truth, reward in ((True, 0.5), (False, 0.4)):
        row = await service.reward(world.request(answer(True, EXACT), truth=truth))
        assert len(world.generator.calls) == drawn and row.image is None
        assert row.step_reward == 0 and row.reward == pytest.approx(reward)
    row = await service.reward(world.request("I cannot say"))
    assert (row.status, row.format, row.reward) == ("malformed", 0, 0)
    assert (row.verdict, row.accuracy, row.step_reward, row.error) == (None,) * 4


async def test_the_code_redraws_bad_images_only(world):
    service = world.service(CODE)
    good = await service.reward(world.request(answer(False, WRONG), truth=True))
    assert (good.step_reward, good.accuracy, world.generator.calls) == (0.5, 0, [])
    bad = await service.reward(world.request(answer(True, EXACT), truth=False))
    assert bad.image and bad.accuracy == 0 and bad.step_reward > 0.6


async def test_without_a_new_prompt_the_previous_one_is_redrawn(world):
    service = world.service()
    await service.reward(world.request(answer(False)))
    await service.reward(world.request(answer(False), rewritten="Paint a meadow."))
    assert [call[0] for call in world.generator.calls] == [GOAL, "Paint a meadow."]


@pytest.mark.parametrize(("takes", "given"), [(None, 3), (2, 2), (1, 1)])
async def test_rewards_are_drawn_from_all_images_where_the_loop_draws_so(world, takes, given):
    world.generator.max_reference_images = takes
    put = world.home.images.put
    colours = ("red", "green", "blue")
    so_far = tuple(put(EncodedImage.of(Image.new("RGB", (192, 192), c))) for c in colours)
    request = world.request(answer(False, EXACT), origin_image=so_far[-1])
    service = world.service(conditioning="all", images_of=lambda _row: so_far)
    await service.reward(request)
    await world.service(run="run-2", images_of=lambda _row: so_far).reward(request)
    assert [call[1] for call in world.generator.calls] == [so_far[-given:], so_far[-1:]]
    drawn, scored = world.ledger()
    assert (drawn.images, scored.images) == (given + 1, 2)


async def test_a_white_canvas_means_from_scratch_and_any_other_image_is_edited(world):
    grey = world.home.images.put(EncodedImage.of(Image.new("RGB", (192, 192), "grey")))
    service = world.service(QUICK.model_copy(update={"seed": 7}))
    await service.reward(world.request(answer(False, EXACT)))
    await service.reward(world.request(answer(False, EXACT), origin_image=grey))
    assert [call[1:] for call in world.generator.calls] == [((), 7), ((grey,), 7)]


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [("hang", "TimeoutError: no answer within 0.2 s"), ("nothing", "answered with NoneType")],
)
async def test_a_failed_draw_is_masked_never_neutral(world, prompt, reason):
    service = world.service(QUICK.model_copy(update={"draw_timeout_seconds": 0.2}))
    row = await service.reward(world.request(answer(False, prompt)))
    assert row.status == "masked" and reason in row.error
    assert (row.reward, row.accuracy, row.step_reward, row.image) == (None,) * 4
    assert (row.format, row.verdict, row.refined_prompt) == (1, False, prompt)


@pytest.mark.parametrize("settings", [QUICK, CODE], ids=["paper", "code"])
@pytest.mark.parametrize(("prompt", "reason"), [("refuse", "not that"), ("broken", "decoded")])
async def test_a_prompt_that_cannot_be_drawn_is_the_worst_image(world, settings, prompt, reason):
    service = world.service(settings)
    row = await service.reward(world.request(answer(False, prompt)))
    before = world.state(truth=False).grades
    assert (row.status, row.image) == ("scored", None) and reason in row.error
    assert row.step_reward == step_reward(before, Grades(0, 0), settings.form)
    assert row.reward < (await rewards(world, service, [answer(False, EXACT)]))[0]


async def test_what_is_not_the_policys_fault_masks_its_rollout(world):
    class Refusing:
        backend, model = "refusing", "1"

        async def score(self, before, after, instruction):
            raise UnusableAnswerError("no grade")

    service = world.service(scorer=Refusing())
    row = await service.reward(world.request(answer(False, EXACT)))
    assert row.status == "masked" and "no grade" in row.error
    missing = world.request(answer(False, EXACT), origin_image="0" * 64)
    row = await world.service().reward(missing)
    assert row.status == "masked" and "missing" in row.error


async def test_a_temporary_failure_is_retried(world):
    service = world.service(QUICK.model_copy(update={"tries": 2}))
    row = await service.reward(world.request(answer(False, EXACT + " hiccup")))
    assert row.status == "scored" and len(world.generator.calls) == 2


async def test_bad_rows_do_not_affect_others(world):
    """Good rows get the same rewards beside failing ones."""
    good = [answer(True), answer(False, EXACT), answer(False, WRONG), answer(False)]
    bad = [answer(False, "nothing"), answer(False, "hang"), "?", answer(False, "nothing")]
    settings = QUICK.model_copy(update={"draw_timeout_seconds": 1, "concurrency": 3})
    alone = await rewards(world, world.service(settings, "alone"), good)
    mixed = [text for pair in zip(bad, good, strict=True) for text in pair]
    interleaved = await rewards(world, world.service(settings, "interleaved"), mixed)
    assert interleaved[1::2] == alone and None not in alone
    assert interleaved[0::2] == [None, None, 0.0, None]


async def rewards(world, service, texts):
    """Rewards of concurrent answers, each to a different row."""
    requests = [world.request(text, row=f"row-{n}") for n, text in enumerate(texts)]
    rows = await asyncio.gather(*map(service.reward, requests))
    assert [row.response for row in rows] == texts
    return [row.reward for row in rows]


async def test_equal_requests_share_one_drawing(world):
    service = world.service()
    request = world.request(answer(False, EXACT))
    rows = await asyncio.gather(*(service.reward(request) for _ in range(8)))
    rows.append(await service.reward(request))
    rows.append(await world.service().reward(request))  # of a process that goes on
    assert len(world.generator.calls) == 1 and len({row.reward for row in rows}) == 1
    assert [(call.role, call.prompt_id, call.error) for call in world.ledger()] == [
        ("generator", "row-1", None),
        ("scorer", "row-1", None),
    ]
    assert len({row.rollout_id for row in rows[:9]}) == 9


async def test_the_step_part_is_the_mean_of_several_drawings(world):
    with_draws = QUICK.model_copy(update={"draws": 3, "seed": 5})
    world.generator.worse_at = 6
    row = await world.service(with_draws).reward(world.request(answer(False, EXACT)))
    assert sorted(call[2] for call in world.generator.calls) == [5, 6, 7]
    gains = []
    for seed in (5, 6, 7):
        one = world.service(QUICK.model_copy(update={"seed": seed}), f"seed-{seed}")
        gains.append((await one.reward(world.request(answer(False, EXACT)))).step_reward)
    assert gains[1] < gains[0] == gains[2] and row.step_reward == pytest.approx(sum(gains) / 3)


async def test_a_rollout_is_masked_where_one_of_its_drawings_failed_and_that_is_not_stored(world):
    service = world.service(QUICK.model_copy(update={"draws": 2}))
    request = world.request(answer(False, EXACT + " hiccup"))
    row = await service.reward(request)
    assert (row.status, row.step_reward) == ("masked", None)
    assert (await service.reward(request)).status == "scored"


async def test_concurrent_drawings_are_limited(world):
    service = world.service(QUICK.model_copy(update={"concurrency": 2}))
    texts = [answer(False, f"{EXACT} Add a cloud number {n}.") for n in range(10)]
    await rewards(world, service, texts)
    assert world.generator.max_active == 2


async def test_every_rollout_is_in_the_journal_and_fits_the_table(world):
    service = world.service()
    for text in (answer(True), "?", answer(False, "nothing"), answer(False, EXACT)):
        await service.reward(world.request(text))
    table = ROLLOUTS.to_arrow(rollout_rows(world.journal.path))
    assert table.schema.equals(ROLLOUTS.arrow_schema, check_metadata=True)
    assert table["status"].to_pylist() == ["scored", "malformed", "masked", "scored"]
    assert [r.row for r in service.step(1)] == rollout_rows(world.journal.path)


async def test_only_the_last_sample_of_a_step_counts(world):
    before = world.service()
    for step in (1, 2, 2, 3):
        await before.reward(world.request(answer(True), step=step))
    again = world.service()
    for step in (2, 2, 3):
        await again.reward(world.request(answer(False), step=step))
    rows = rollout_rows(world.journal.path)
    verdicts = [(row.step, row.verdict) for row in rows]
    assert verdicts == [(1, True), (2, False), (2, False), (3, False)]
    assert len({row.rollout_id for row in rows}) == 4


async def test_rows_that_are_not_trained_on_are_no_rollouts_of_training(world):
    service = world.service()
    texts = [answer(False, EXACT), answer(True), answer(False, "nothing")]
    for number, text in enumerate(texts):
        request = world.request(text, row=f"dev-{number}")
        await service.reward(request.model_copy(update={"dev": True}))
    assert dev_figures(service.evaluation(2)) == {} == step_figures(service.step(1))
    assert rollout_rows(world.home.local / "none.jsonl") == [] and failed_share([]) == 0
    figures, rewards = (
        dev_figures(service.evaluation(1)),
        [r.row.reward for r in service.evaluation(1)],
    )
    assert figures["dev_reward"] == pytest.approx((rewards[0] + rewards[1]) / 2)
    assert (figures["dev_accuracy"], figures["dev_masked_share"]) == (-0.5, pytest.approx(1 / 3))
    await service.reward(world.request(answer(True)))
    assert [row.row_id for row in rollout_rows(world.journal.path)] == ["row-1"]
    assert [call.role for call in world.ledger()] == ["generator", "scorer", "generator"]


async def test_without_a_step_part_nothing_is_drawn_and_right_answers_are_counted(world):
    service = world.service(RewardSettings(without=("step",)))
    for text in (answer(True), answer(True), answer(False, EXACT), "?"):
        request = world.request(text, truth=True, row="often", step=0)
        await service.reward(request.model_copy(update={"dev": True}))
    row = await service.reward(world.request(answer(True, EXACT), truth=False, row="never"))
    assert right_shares(world.journal.path) == {"often": 0.5, "never": 0}
    assert (world.generator.calls, row.step_reward, row.reward) == ([], None, 0)


async def test_a_line_that_is_no_rollout_is_named(world):
    with world.journal as journal:
        await journal.add({"attempt": "x", "row": {}})
    with pytest.raises(FoundryError, match=r"run-1.jsonl:\d: not a rollout"):
        rollout_rows(world.journal.path)


async def test_the_figures_of_a_step(world):
    service = world.service()
    texts = [answer(True), "?", answer(False, "nothing"), answer(False, EXACT)]
    await rewards(world, service, texts)
    figures = step_figures(service.step(1))
    assert (figures["masked_share"], figures["malformed_share"]) == (0.25, 0.25)
    assert figures["accepted_share"] == pytest.approx(1 / 3) and figures["accuracy"] == -0.5
    assert failed_share(service.recent_rows(5)) == 0.5
    await service.reward(world.request(answer(False, "refuse")))
    assert failed_share(service.recent_rows(5)) == pytest.approx(2 / 3)


async def test_groups_with_one_reward_are_counted(world):
    service = world.service()
    await rewards(world, service, [answer(True), "?"])
    malformed, accepted = sorted(service.step(1), key=lambda each: each.row.reward)

    def share(*groups):
        rollouts = [
            each.model_copy(update={"row": each.row.model_copy(update={"row_id": str(number)})})
            for number, group in enumerate(groups)
            for each in group
        ]
        return step_figures(rollouts).get("equal_groups_share")

    assert share([accepted, accepted], [malformed, malformed]) == 1
    assert share([accepted, accepted], [accepted, malformed]) == 0.5
    masked = accepted.row.model_copy(update={"reward": None})
    assert share([accepted.model_copy(update={"row": masked})]) is None
