"""Users' requests as prompts: which count, and in which shard they stay."""

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.settings import BankSettings
from assets.prompts.user_requests import ASKED, request_prompts
from schemas import FoundryError
from tests.assets.prompts.tiny_pack import zoo

SETTINGS = BankSettings(shard_size=2)
TEXTS = ["How to bake bread", "Tell me of a lonely comet", "Show a boat on a river"]


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return generate_bank(zoo(tmp_path_factory.mktemp("pack")), BankSettings(heldout_share=0.3), 30)


def shards_of(prompts):
    return {prompt.text: prompt.shard for prompt in prompts}


def test_requests_fill_shards_of_their_own_in_their_order(others):
    asked = request_prompts(TEXTS, [], others, SETTINGS)
    assert [(row.text, row.shard) for row in asked] == [
        (TEXTS[0], "requests-0000"),
        (TEXTS[1], "requests-0000"),
        (TEXTS[2], "requests-0001"),
    ]
    assert {(row.pack, row.split) for row in asked} == {(ASKED, "train")}


def test_a_prompt_stays_in_its_shard(others):
    first = request_prompts(TEXTS, [], others, SETTINGS)
    late = ["Paint a tin robot", "Plan a picnic"]
    earlier_than_all = [late[0], *TEXTS, late[1]]
    grown = request_prompts(earlier_than_all, first, others, SETTINGS)
    assert grown[:3] == first
    assert shards_of(grown[3:]) == {late[0]: "requests-0001", late[1]: "requests-0002"}
    without = request_prompts([*TEXTS[1:], *late], grown, others, SETTINGS)
    assert shards_of(without) == {t: s for t, s in shards_of(grown).items() if t != TEXTS[0]}


@pytest.mark.parametrize("split", ["train", "heldout", "heldout_category"])
def test_what_a_pack_has_is_no_request(others, split):
    text = next(row.text for row in others if row.split == split)
    assert request_prompts([f"Please, {text.lower()}!"], [], others, SETTINGS) == []


def test_each_counts_once_and_only_with_something_to_say(others):
    texts = [TEXTS[0], "how do I bake bread?", "...", "what is it?"]
    assert [row.text for row in request_prompts(texts, [], others, SETTINGS)] == [TEXTS[0]]


def test_a_pack_of_their_name_is_refused(others):
    with pytest.raises(FoundryError, match="a pack is named 'requests'"):
        request_prompts(TEXTS, [], request_prompts(TEXTS, [], others, SETTINGS), SETTINGS)
