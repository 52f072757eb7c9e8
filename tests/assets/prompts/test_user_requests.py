"""Users' requests as prompts: which count, and their shards."""

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.settings import BankSettings
from assets.prompts.user_requests import REQUESTS_PACK, request_prompts
from schemas import FoundryError
from tests.assets.prompts.tiny_pack import tiny_pack

SETTINGS = BankSettings(shard_size=2)
TEXTS = ["How to bake bread", "Tell me of a lonely comet", "Show a boat on a river"]


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return generate_bank(
        tiny_pack(tmp_path_factory.mktemp("pack")), BankSettings(heldout_share=0.3), 30
    )


def shards_of(prompts):
    return {prompt.text: prompt.shard for prompt in prompts}


def test_requests_fill_shards_of_their_own_in_order(others):
    prompts = request_prompts(TEXTS, [], others, SETTINGS)
    assert [(row.text, row.shard) for row in prompts] == [
        (TEXTS[0], "requests-0000"),
        (TEXTS[1], "requests-0000"),
        (TEXTS[2], "requests-0001"),
    ]
    assert {(row.pack, row.split) for row in prompts} == {(REQUESTS_PACK, "train")}


def test_a_prompt_stays_in_its_shard(others):
    first = request_prompts(TEXTS, [], others, SETTINGS)
    later = ["Paint a tin robot", "Plan a picnic"]
    all_texts = [later[0], *TEXTS, later[1]]
    grown = request_prompts(all_texts, first, others, SETTINGS)
    assert grown[:3] == first
    assert shards_of(grown[3:]) == {later[0]: "requests-0001", later[1]: "requests-0002"}
    without = request_prompts([*TEXTS[1:], *later], grown, others, SETTINGS)
    assert shards_of(without) == {t: s for t, s in shards_of(grown).items() if t != TEXTS[0]}


def test_near_duplicates_and_texts_without_content_words_do_not_count(others):
    by_split = {row.split: row.text for row in others}
    assert by_split.keys() == {"train", "heldout", "heldout_category"}
    for text in by_split.values():
        assert request_prompts([f"Please, {text.lower()}!"], [], others, SETTINGS) == []
    texts = [TEXTS[0], "how do I bake bread?", "...", "what is it?"]
    assert [row.text for row in request_prompts(texts, [], others, SETTINGS)] == [TEXTS[0]]


def test_pack_named_requests_is_an_error(others):
    with pytest.raises(FoundryError, match="a pack is named 'requests'"):
        request_prompts(TEXTS, [], request_prompts(TEXTS, [], others, SETTINGS), SETTINGS)
