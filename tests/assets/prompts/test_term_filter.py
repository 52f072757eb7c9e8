"""Proposed terms: which are accepted, why others are rejected, and packs expanded by them."""

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.expansion import (
    TermFormat,
    add_accepted_terms,
    bank_questions,
    filter_terms,
    heldout_banks,
    open_kinds,
    uses,
)
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from inference.agent_prompts.templates import render
from inference.questions import ProposedTerm
from tests.assets.prompts.tiny_pack import tiny_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return tiny_pack(tmp_path_factory.mktemp("pack"))


def proposals(bank, *terms, kind="entity", countable=True):
    return bank, [ProposedTerm(kind, t, countable) for t in terms]


def filtered(pack, *banks, count=20):
    return filter_terms(pack, dict(banks), count, "openai/m-1")


def filter_one(pack, bank, term, **options):
    (row,) = filtered(pack, proposals(bank, term, **options))
    return row


def test_new_terms_are_accepted_in_the_banks_spelling(pack):
    for proposed, term in (
        ("badger", "badger"),
        ("  snow   leopard ", "snow leopard"),
        ("A badger.", "badger"),
        ('"badger"', "badger"),
        ("3. badger", "badger"),
        ("Badger", "badger"),
        ("Darwin\u2019s frog", "darwin's frog"),
        ("bird of prey", "bird of prey"),
    ):
        row = filter_one(pack, "animals", proposed)
        assert (row.status, row.reason, row.term) == ("accepted", None, term)
        assert row.proposed == proposed


def check_reason(pack, bank, kind, term, reason):
    row = filter_one(pack, bank, term, kind=kind)
    assert row.status == ("rejected" if reason else "accepted"), term
    assert (row.reason or "").startswith(reason or ""), term


def test_reasons_of_rejection(pack):
    for proposed, reason in (
        ("otter", "repeats `otter` of animals.entity"),
        ("OTTER", "has capitals"),
        ("The Otter", "repeats `otter`"),
        ("the otter", "repeats `otter`"),
        ("red fox", "repeats `red fox`"),
        ("fox of red", "repeats `red fox`"),
        ("fern", "repeats `fern` of plants.entity"),
        ("badgers", "is a plural"),
        ("birds of prey", "is a plural"),
        ("juggler", "is held out with `juggler` of acts.entity"),
        ("clown fish", "is held out with `clown` of acts.entity"),
        ("<b>lynx</b>", "has / < >"),
        ("**lynx**", "has *"),
        ("{entity} cub", "has { }"),
        ("lynx (wild)", "has ( )"),
        ("ox in the den", "has more than 3 words"),
        ("hippopotamusrhinoceros", "is longer than 20 characters"),
        ("", "says nothing"),
        ("the", "says nothing"),
    ):
        check_reason(pack, "animals", "entity", proposed, reason)
    assert "kind" in filter_one(pack, "animals", "badger", kind="colour").reason


def test_verb_phrases_begin_with_a_verb_in_its_base_form(pack):
    for proposed, reason in (
        ("clean a stable", None),
        ("cleaning a stable", "does not begin with a verb"),
        ("cleans a stable", "does not begin with a verb"),
        ("brush ponies", "repeats `brush a pony`"),
        ("rake leaves", "repeats `rake the leaves` of plants.action"),
        ("applaud a seal", "is held out with `applaud {entity:a}` of acts.action"),
    ):
        check_reason(pack, "animals", "action", proposed, reason)


def test_proposals_are_compared_with_each_other_and_counted(pack):
    rows = filtered(
        pack,
        proposals("animals", "badger", "badger", "stoat", "lynx"),
        proposals("plants", "badger", "moss"),
        count=2,
    )
    reasons = [row.reason for row in rows]
    assert reasons[:2] == [None, "repeats `badger` of animals.entity"]
    assert reasons[2:4] == [None, "is more than was asked for"]
    assert reasons[4:] == ["repeats `badger` of animals.entity", None]
    assert [row.number for row in rows] == [1, 2, 3, 4, 1, 2]


def test_new_terms_of_a_held_out_bank_are_held_out(pack):
    rows = filtered(pack, proposals("animals", "unicycle bear"), proposals("acts", "unicycle"))
    by_term = {row.term: row for row in rows}
    assert by_term["unicycle"].status == "accepted"
    assert by_term["unicycle bear"].reason == "is held out with `unicycle` of acts.entity"


def test_expanded_pack_has_its_own_and_the_accepted_terms(pack):
    moss = proposals("plants", "moss", countable=False)
    more = proposals("animals", "badger", "otter"), proposals("acts", "unicycle")
    rows = filtered(pack, moss, *more)
    expanded = add_accepted_terms(pack, rows)
    assert [t.term for t in expanded.banks["animals"]["entity"]][-2:] == ["penguin", "badger"]
    assert expanded.banks["plants"]["action"] == pack.banks["plants"]["action"]
    prompts = generate_bank(expanded, BankSettings(), 48)
    assert "Show moss" in {prompt.text for prompt in prompts}, "uncountable ones have no article"
    assert "badger" in {term for prompt in prompts for term in prompt.terms}
    splits = {p.split for p in prompts if "unicycle" in p.terms}
    assert splits == {"heldout_category"}
    assert add_accepted_terms(pack, []).digest == pack.digest
    assert add_accepted_terms(expanded, rows).digest == expanded.digest


def test_request_shows_the_banks_topics_and_its_plain_terms(pack):
    questions = {question.bank: question for question in bank_questions(pack, 7)}
    assert set(questions) == {"animals", "plants", "acts"}
    text = render("expander", **vars(questions["animals"])).text
    for part in ("Zoo: Wild animals", "- otter\n", "- brush a pony\n", "Propose 7 new terms"):
        assert part in text
    assert "{" not in text.split("<answer>")[0]


@pytest.mark.parametrize("name", ["interleave", "sketchbook"])
def test_hand_written_terms_have_the_form_required_of_new_ones(name):
    pack = load_pack(name)
    by_source = uses(pack)
    wrong = []
    for bank, kinds in pack.banks.items():
        for kind in open_kinds(kinds):
            term_format = TermFormat(kinds[kind], by_source[bank, kind])
            for term in (term for term in kinds[kind] if not term.slots):
                fault = term_format.fault(term.term, term.fixed)
                if fault or term_format.normalize(term.term) != term.term:
                    wrong.append(term.term)
    # A genus is no plural, and numbers are function words.
    assert wrong == {"interleave": ["Triceratops"], "sketchbook": ["three", "four", "five"]}[name]


def test_banks_of_held_out_subcategories_alone_are_held_out(pack):
    assert heldout_banks(pack) == {"acts"}
    assert {"fossils", "sleuths"} <= heldout_banks(load_pack("interleave"))
    assert "robots" not in heldout_banks(load_pack("interleave"))


def test_sketch_world_must_understand_a_new_term():
    sketchbook = load_pack("sketchbook")
    for bank, kind, term, reason in (
        ("things", "light", "mug", None),
        ("things", "light", "brick", None),
        ("things", "light", "zebra", "names nothing that the sketch world knows"),
        ("things", "light", "fortress", "names thing castle, which no term of its kind does"),
        ("audiences", "audience", "my uncle", None),
        ("audiences", "audience", "my best friend", "names thing person"),
        ("colors", "color", "turquoise", "names nothing"),
    ):
        check_reason(sketchbook, bank, kind, term, reason)
