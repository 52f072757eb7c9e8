"""Proposed terms: which are accepted, why others are not, and what packs become of them."""

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.expansion.bank_requests import bank_briefs
from assets.prompts.expansion.term_filter import filter_terms, grown
from assets.prompts.expansion.term_format import TermFormat
from assets.prompts.expansion.usage import heldout_banks, uses
from assets.prompts.pack import load_pack
from assets.prompts.settings import BankSettings
from inference.agent_prompts import expander_prompt
from inference.vocabulary_engine import ExpandedBank
from inference.vocabulary_protocol import ProposedTerm
from tests.assets.prompts.tiny_pack import zoo


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return zoo(tmp_path_factory.mktemp("pack"))


def proposals(bank, *terms, kind="entity", countable=True):
    return ExpandedBank(bank, tuple(ProposedTerm(kind, t, countable) for t in terms), None)


def sifted(pack, *banks, count=20):
    return filter_terms(pack, banks, count, 0.7, "openai/m-1")


def one(pack, bank, term, **more):
    (row,) = sifted(pack, proposals(bank, term, **more))
    return row


@pytest.mark.parametrize(
    ("proposed", "term"),
    [
        ("badger", "badger"),
        ("  snow   leopard ", "snow leopard"),
        ("A badger.", "badger"),
        ('"badger"', "badger"),
        ("3. badger", "badger"),
        ("Badger", "badger"),
        ("Darwin\u2019s frog", "darwin's frog"),
        ("bird of prey", "bird of prey"),
    ],
)
def test_what_is_well_formed_and_new_is_accepted_as_the_bank_spells_it(pack, proposed, term):
    row = one(pack, "animals", proposed)
    assert (row.status, row.reason, row.term) == ("accepted", None, term)
    assert row.proposed == proposed


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
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
    ],
)
def test_what_is_rejected_and_why(pack, proposed, reason):
    row = one(pack, "animals", proposed)
    assert row.status == "rejected"
    assert row.reason.startswith(reason)


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
        ("clean a stable", None),
        ("cleaning a stable", "does not begin with a verb"),
        ("cleans a stable", "does not begin with a verb"),
        ("brush ponies", "repeats `brush a pony`"),
        ("rake leaves", "repeats `rake the leaves` of plants.action"),
        ("applaud a seal", "is held out with `applaud {entity:a}` of acts.action"),
    ],
)
def test_verb_phrases_begin_with_a_verb_that_templates_can_inflect(pack, proposed, reason):
    row = one(pack, "animals", proposed, kind="action")
    assert (row.reason or "").startswith(reason or "")
    assert (row.reason is None) == (reason is None)


def test_proposals_are_compared_with_each_other_and_counted(pack):
    rows = sifted(
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


def test_what_is_new_in_a_held_out_bank_is_held_out_too(pack):
    rows = sifted(pack, proposals("animals", "unicycle bear"), proposals("acts", "unicycle"))
    by_term = {row.term: row for row in rows}
    assert by_term["unicycle"].status == "accepted"
    assert by_term["unicycle bear"].reason == "is held out with `unicycle` of acts.entity"


def test_kinds_that_a_bank_lacks_are_rejected(pack):
    assert "kind" in one(pack, "animals", "badger", kind="colour").reason


def test_what_cannot_be_counted_takes_no_article(pack):
    rows = sifted(pack, proposals("plants", "moss", countable=False))
    texts = [p.text for p in generate_bank(grown(pack, rows), BankSettings(), 45)]
    assert "Show moss" in texts


def test_a_grown_pack_has_the_accepted_terms_and_all_that_it_had(pack):
    rows = sifted(pack, proposals("animals", "badger", "otter"), proposals("acts", "unicycle"))
    bigger = grown(pack, rows)
    assert [t.term for t in bigger.banks["animals"]["entity"]][-2:] == ["penguin", "badger"]
    assert bigger.banks["plants"] == pack.banks["plants"]
    prompts = generate_bank(bigger, BankSettings(), 45)
    assert "badger" in {term for prompt in prompts for term in prompt.terms}
    splits = {p.split for p in prompts if "unicycle" in p.terms}
    assert splits == {"heldout_category"}
    assert grown(pack, []).digest == pack.digest
    assert grown(bigger, rows).digest == bigger.digest


def test_a_model_is_shown_the_banks_topics_and_its_plain_terms(pack):
    briefs = {brief.bank: brief for brief in bank_briefs(pack, 7)}
    assert set(briefs) == {"animals", "plants", "acts"}
    text = expander_prompt(briefs["animals"]).text
    for part in ("Zoo: Wild animals", "- otter\n", "- brush a pony\n", "Propose 7 new terms"):
        assert part in text
    assert "{" not in text.split("<answer>")[0]


@pytest.mark.parametrize("name", ["interleave", "sketchbook"])
def test_hand_written_terms_have_the_form_that_is_asked_of_new_ones(name):
    pack = load_pack(name)
    places = uses(pack)
    wrong = [
        term.term
        for bank, kinds in pack.banks.items()
        for kind, terms in kinds.items()
        for shape in [TermFormat(terms, places[bank, kind])]
        for term in terms
        if not term.slots and (shape.fault(term.term, term.fixed) or _changed(shape, term.term))
    ]
    # A genus is no plural, and numbers are function words.
    assert wrong == {"interleave": ["Triceratops"], "sketchbook": ["three", "four", "five"]}[name]


def _changed(shape, term):
    return shape.normal(term) != term


def test_held_out_banks_are_those_of_held_out_subcategories_alone(pack):
    assert heldout_banks(pack) == {"acts"}
    assert {"fossils", "sleuths"} <= heldout_banks(load_pack("interleave"))
    assert "robots" not in heldout_banks(load_pack("interleave"))


@pytest.mark.parametrize(
    ("bank", "kind", "term", "reason"),
    [
        ("things", "light", "mug", None),
        ("things", "light", "brick", None),
        ("things", "light", "zebra", "names nothing that the sketch world knows"),
        ("things", "light", "fortress", "names thing castle, which no term of its kind does"),
        ("audiences", "audience", "my uncle", None),
        ("audiences", "audience", "my best friend", "names thing person"),
        ("colors", "color", "turquoise", "names nothing"),
    ],
)
def test_the_sketch_world_must_be_able_to_read_a_new_term(bank, kind, term, reason):
    row = one(load_pack("sketchbook"), bank, term, kind=kind)
    assert (row.reason or "").startswith(reason or "")
    assert (row.reason is None) == (reason is None)
