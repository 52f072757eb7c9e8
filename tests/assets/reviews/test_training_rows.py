"""What people say becomes training rows, where the settings say so."""

import json
from collections import Counter

import pytest

from assets.curation.critic_sets import build_critic_rl, build_critic_sft
from assets.curation.exports.publisher import export_all
from assets.curation.planner_sets import build_planner_sft
from assets.curation.preference_pairs import build_critic_dpo
from assets.curation.sequences import build_sequences
from assets.curation.settings import CurationSettings, PreferenceSettings
from assets.curation.steps import build_steps
from schemas.curation import CRITIC_DPO, STEPS
from tests.assets.curation.curated_world import AS_IS, curate, records

ACCEPT = {"previous_step_success": True, "refine_prompt": ""}


def reject(text):
    return {"previous_step_success": False, "refine_prompt": text}


def settings(theta=100.0, **reviews):
    return CurationSettings(split={"theta": theta}, critic=AS_IS, reviews=reviews or None)


def curated(world, options):
    return curate(world.write(), options, STEPS)


def sft(world, options):
    return records(build_critic_sft(curated(world, options), options)[0])


def answer_of(text):
    return json.loads(text.split("<answer>")[1].removesuffix("</answer>"))


def learned(row):
    return answer_of(row["messages"][1]["content"])


def test_a_persons_verdict_takes_the_place_of_the_critics(world, say):
    world.add("a", [(7, False), (9, True)])
    say("a", 1, 0, accepted=True)
    plain, used = sft(world, settings()), sft(world, settings(use=True))
    assert [row["accepted"] for row in plain] == [False, True]
    assert [row["accepted"] for row in used] == [True, True]
    assert not any(row["decided_by"] for row in plain)
    assert [row["decided_by"] for row in used] == ["person", None]
    assert learned(used[0]) == ACCEPT
    assert used[0]["messages"][1]["content"].startswith("<think></think>")
    assert "looks right" in used[1]["messages"][1]["content"]


def test_nothing_contradicts_a_person(world, say):
    """Neither the scores nor that a rewrite led to nothing better."""
    world.add("a", [(5, True)])
    world.add("b", [(5, False), (7, False)])
    assert [row["prompt_id"] for row in sft(world, settings(use=True))] == ["b"]
    say("a", 1, 0, accepted=True)
    say("b", 1, 1, prompt="a red barn")
    rows = sft(world, settings(use=True))
    assert [(row["prompt_id"], row["decided_by"]) for row in rows] == [
        ("a", "person"),
        ("b", None),
        ("b", "person"),
    ]
    assert learned(rows[2]) == reject("a red barn")
    assert "looks wrong" in rows[2]["messages"][1]["content"]


def test_a_rejection_without_a_prompt_cannot_be_learned(world, say):
    world.add("a", [(9, True)])
    say("a", 1, 0, accepted=False)
    home, options = curated(world, settings(use=True)), settings(use=True)
    rows, dropped, _ = build_critic_sft(home, options)
    assert (records(rows), dropped) == ([], {"no_rewrite": 1})
    options = settings(theta=0, use=True, share=0.5)
    world.add("b", [(2, False), (9, True)])
    say("b", 1, 1, accepted=False)
    rl = records(build_critic_rl(curated(world, options), options)[0])
    of_b = [(row["evaluation"]["success"], row["decided_by"]) for row in rl]
    assert of_b == [(False, None), (False, "person")]


def test_reviewers_vote_and_a_tie_is_no_verdict(world, say):
    world.add("a", [(9, True)])
    world.add("b", [(9, True)])
    for name, reviewers in (("a", "xy"), ("b", "xyz")):
        for number, reviewer in enumerate(reviewers):
            say(name, 1, 0, reviewer, accepted=number == 0)
        say(name, 1, 0, "w", prompt="another")
    rows = sft(world, settings(use=True))
    assert [(row["prompt_id"], row["accepted"], row["decided_by"]) for row in rows] == [
        ("a", True, None),
        ("b", False, "person"),
    ]


def test_reviews_of_another_image_do_not_count(world, say):
    world.add("a", [(9, True)])
    say("a", 1, 0, image="0" * 64, accepted=False)
    (row,) = sft(world, settings(use=True))
    assert (row["accepted"], row["decided_by"]) == (True, None)


class TestPairs:
    def pairs(self, world, **reviews):
        home = world.write()
        table, dropped = build_critic_dpo(home, settings(**reviews or {"use": True}))
        home.lake.write(CRITIC_DPO, table)
        return home.lake.read(CRITIC_DPO).to_pylist(), dropped

    def test_verdicts_prompts_and_preferences(self, world, say):
        world.add("a", [(2, False), (9, True)])
        world.add("b", [(2, False), (3, False), (9, True)])
        world.add("held", [(2, False)], split="heldout")
        say("a", 1, 0, accepted=True)
        say("b", 1, 0, better=1)
        say("b", 1, 1, prompt="a red barn")
        say("held", 1, 0, accepted=True)
        rows, dropped = self.pairs(world)
        assert not dropped
        verdict, preference, prompt = rows
        answers = [
            [answer_of(row[side]["content"]) for side in ("chosen", "rejected")] for row in rows
        ]
        assert verdict["source"] == "verdict" and answers[0] == [ACCEPT, reject("try 1.1")]
        assert preference["source"] == "preference" and answers[1] == [reject("try 1.1"), ACCEPT]
        assert (prompt["source"], prompt["iteration"]) == ("prompt", 1)
        assert answers[2] == [reject("a red barn"), reject("try 1.2")]
        assert all("<think></think>" in row["chosen"]["content"] for row in rows)
        assert len(prompt["images"]) == prompt["messages"][0]["content"].count("<image>") == 2

    def test_an_attempt_is_compared_with_several(self, world, say):
        world.add("a", [(2, False), (3, False), (9, True)])
        say("a", 1, 0, better=1)
        say("a", 1, 0, better=2, beside=2)
        rows, _ = self.pairs(world)
        assert [row["row_id"] for row in rows] == [f"a-run/1/0/preference/{n}" for n in (1, 2)]

    def test_a_preference_against_a_verdict_is_left_out(self, world, say):
        world.add("a", [(2, False), (3, True)])
        say("a", 1, 0, better=0)
        say("a", 1, 0, accepted=False)
        assert self.pairs(world)[1] == {"contradicts_verdict": 1}

    def score_pairs(self, world, **preferences):
        options = settings().model_copy(
            update={"preferences": PreferenceSettings(scores=True, **preferences)}
        )
        table, dropped = build_critic_dpo(world.write(), options)
        answers = [
            (
                *(row[name] for name in ("trajectory_id", "iteration", "source")),
                *(answer_of(row[side]["content"]) for side in ("chosen", "rejected")),
            )
            for row in records(table)
        ]
        return answers, Counter(source for _, _, source, *_ in answers), dropped

    def test_scores_say_whether_the_critics_rejection_was_right(self, world):
        world.add("right", [(2, False), (9, True)])
        world.add("wrong", [(9.8, False), (9, True)])
        world.add("held", [(2, False), (9, True)], split="heldout")
        pairs, counts, dropped = self.score_pairs(world)
        assert (counts, dropped) == ({"score_verdict": 2}, {})
        refined = reject("try 1.1")
        assert pairs == [
            ("right-run", 0, "score_verdict", refined, ACCEPT),
            ("wrong-run", 0, "score_verdict", ACCEPT, refined),
        ]

    def test_scores_that_decide_nothing_make_no_pair(self, world):
        world.add("between", [(7, False), (9, True)])
        world.add("worse", [(4, False), (2, True)])  # and accepted, without another prompt
        assert self.score_pairs(world) == ([], {}, {
            "no_rewrite": 1, "undecided": 1, "worse_rewrite": 1
        })  # fmt: skip

    def test_refinements_of_a_step_are_compared_by_their_images(self, world):
        world.add("a", [(7, False), (2, False), (4, False), (9, True)], [(7, False), (9, True)])
        pairs, counts, _ = self.score_pairs(world)
        assert counts["score_prompt"] == 2
        assert [pair for pair in pairs if pair[2] == "score_prompt"] == [
            ("a-run", 0, "score_prompt", reject("try 1.3"), reject("try 1.1")),
            ("a-run", 1, "score_prompt", reject("try 1.3"), reject("try 1.2")),
        ]
        assert "score_prompt" not in self.score_pairs(world, min_gap=8)[1]

    def test_people_decide_before_scores(self, world, say):
        world.add("a", [(2, False), (9, True)])
        say("a", 1, 0, accepted=False)
        assert self.score_pairs(world)[1] == {"score_verdict": 1}  # reviews are not used
        options = settings(use=True).model_copy(
            update={"preferences": PreferenceSettings(scores=True)}
        )
        assert records(build_critic_dpo(world.home, options)[0]) == []

    def test_none_unless_the_settings_use_reviews(self, world, say):
        world.add("a", [(2, False), (3, True)])
        say("a", 1, 0, accepted=True)
        assert self.pairs(world, share=0.1)[0] == []

    def test_they_are_exported_in_llama_factorys_form(self, world, say):
        world.add("a", [(2, False), (9, True)])
        say("a", 1, 0, accepted=True)
        self.pairs(world)
        exports = settings(use=True).model_copy(
            update={"exports": settings().exports.model_copy(update={"formats": ()})}
        )
        (card,) = export_all(world.home, exports)
        folder = world.home.exports / "preferences"
        info = json.loads((folder / "dataset_info.json").read_text())["critic_dpo"]
        assert info["ranking"] is True and info["columns"]["chosen"] == "chosen"
        (row,) = json.loads((folder / info["file_name"]).read_text())
        assert [message["role"] for message in row["messages"]] == ["user"]
        assert row["chosen"]["role"] == row["rejected"]["role"] == "assistant"
        assert all((folder / image).is_file() for image in row["images"])
        assert card.counts == {"critic_dpo.json": 1}


@pytest.mark.parametrize(("share", "shards"), [(0.0, {"0", "1"}), (0.5, {"0"}), (1.0, set())])
def test_a_shard_waits_for_its_share_of_verdicts(world, say, share, shards):
    world.add("a", [(2, False), (9, True)], shard="toy-0000")
    world.add("b", [(2, False), (9, True)], shard="toy-0001")
    world.add("mine", [(2, False), (9, True)], shard="requests-0000")
    say("a", 1, 0, accepted=False)
    say("b", 1, 0, prompt="no verdict")
    options, number = settings(share=share), {"a": "0", "b": "1", "mine": "requests"}
    shards = shards | {"requests"}  # nobody can review them
    home = curated(world, options)
    prompts = {number[row["prompt_id"]] for row in sft(world, options)}
    assert prompts == shards
    for build in (build_steps, build_planner_sft, build_sequences):
        found = {row["prompt_id"] for row in records(build(home, options)[0])}
        assert {number[name] for name in found} == shards
