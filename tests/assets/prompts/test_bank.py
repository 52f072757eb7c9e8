"""The prompt bank: counts, balance, splits without leaks, growth, and correct English."""

import itertools
import re
from collections import Counter, defaultdict
from hashlib import sha256

import pytest

from assets.prompts.bank import PromptBank, generate_bank
from assets.prompts.metadata import bank_metadata
from assets.prompts.pack import pack_tables
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from assets.prompts.template_fills import Content, NearDuplicates, append_suffix, apply_form
from schemas import FoundryError
from schemas.prompts import CATEGORIES, PROMPTS, TEMPLATES, VOCABULARY
from tests.assets.prompts.tiny_pack import write_pack

SETTINGS = BankSettings()


@pytest.fixture(scope="module")
def pack():
    return load_pack("interleave")


@pytest.fixture(scope="module")
def bank(pack):
    return PromptBank(pack, SETTINGS, 40_000)


@pytest.fixture(scope="module")
def prompts(bank):
    return bank.prompts


def test_forty_thousand_distinct_prompts_balanced_over_subcategories(prompts, pack):
    """Ids are pack and hash of the text, with those of the pictures that come with it."""
    texts = {(p.text.lower(), *(p.input_image_texts or ())) for p in prompts}
    assert len(texts) == len({prompt.prompt_id for prompt in prompts}) == 40_000
    assert PROMPTS.to_arrow(prompts).num_rows == 40_000
    with_images = next(prompt for prompt in prompts if prompt.input_image_texts)
    for prompt in (prompts[0], with_images):
        content = "\n".join([prompt.text, *(prompt.input_image_texts or ())])
        assert prompt.prompt_id == f"interleave-{sha256(content.encode()).hexdigest()[:12]}"
    counts = Counter(prompt.subcategory for prompt in prompts)
    assert set(counts) == set(pack.subcategories)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_every_shard_has_a_hundred_prompts_of_all_subcategories_and_splits(prompts, pack):
    shards = defaultdict(list)
    for prompt in prompts:
        shards[prompt.shard].append(prompt)
    assert list(shards) == [f"interleave-{n:04d}" for n in range(400)]
    for shard in shards.values():
        assert len(shard) == 100
        counts = Counter(prompt.subcategory for prompt in shard)
        assert len(counts) == len(pack.subcategories)
        assert max(counts.values()) <= 2
    first = Counter(prompt.split for shard in list(shards.values())[:50] for prompt in shard)
    assert first["heldout"] == pytest.approx(0.05 * (first["heldout"] + first["train"]), rel=0.2)


def test_nothing_held_out_leaks_into_training(prompts):
    """Computed from the rows alone; templates and sub-categories: by their columns, below."""
    combinations = defaultdict(set)
    for prompt in prompts:
        combinations[prompt.split].add(tuple(sorted(prompt.terms)))
    assert min(len(combinations[s]) for s in ("train", "heldout", "heldout_category")) > 1000
    assert not combinations["train"] & combinations["heldout"]
    assert not combinations["train"] & combinations["heldout_category"]
    assert not combinations["heldout"] & combinations["heldout_category"]


def test_splits_follow_the_heldout_columns_of_the_tables(prompts, pack):
    tables = pack_tables(pack)
    subcategories = {row.subcategory for row in tables[CATEGORIES] if row.heldout}
    templates = {row.template_id for row in tables[TEMPLATES] if row.heldout}
    for prompt in prompts:
        assert (prompt.subcategory in subcategories) == (prompt.split == "heldout_category")
        assert (prompt.template_id in templates) == (prompt.split == "heldout")


def test_suffixes_do_not_make_a_prompt_new(prompts, pack):
    suffixes = sorted((s.text for s in pack.taxonomy.suffixes if s.text), key=len)
    bare = set()
    for prompt in prompts:
        text = prompt.text + "".join(prompt.input_image_texts or ())
        for suffix in suffixes:
            text = text.replace(suffix, "")
        bare.add(re.sub(r"\W", "", text.lower()))
    assert len(bare) == len(prompts)


def test_near_duplicates_are_left_out_and_counted(bank):
    """Same sub-category and template, compared word by word, without the generator's own rule."""
    groups = defaultdict(list)
    for prompt in bank.prompts:
        if prompt.suffix is None:
            shown = " ".join(prompt.input_image_texts or ())
            words = frozenset(re.findall(r"\w+", f"{prompt.text} {shown}".lower()))
            groups[prompt.subcategory, prompt.template_id].append(words)
    assert all(len(group) == len(set(group)) for group in groups.values())
    assert bank.near_duplicates > 0


def test_the_same_settings_give_the_same_bank_however_large_and_another_seed_another(pack, prompts):
    assert generate_bank(pack, SETTINGS, 800) == prompts[:800]
    other = generate_bank(pack, BankSettings(seed=1), 300)
    assert len({p.text for p in prompts[:300]} & {p.text for p in other}) < 30


def test_composite_pictures_are_a_marked_few(prompts, pack):
    composite = {row.template_id for row in pack_tables(pack)[TEMPLATES] if row.composite}
    share = sum(prompt.template_id in composite for prompt in prompts) / len(prompts)
    assert 0.01 < share < 0.05
    panels = re.compile(
        r"poster with numbered|comic strip|checklist|facing pages|instruction sheet"
    )
    assert {p.template_id for p in prompts if panels.search(p.text)} <= composite


def test_texts_are_clean_and_speak_of_nothing_that_is_not_given(prompts):
    wrong = {
        r"[{}]|\s\s|\s[.,?!]|[.,?!]{2}|\b(a|an|the) (a|an|the)\b|^\s|\s$",
        r"\b(\w+) \1\b|^(?-i:[a-z])",
        r"existing steps|\bthis (?!pattern)\w+,|given (image|picture|step)|attached",
    }
    patterns = [re.compile(pattern, re.IGNORECASE) for pattern in wrong]
    found = [prompt.text for prompt in prompts if any(p.search(prompt.text) for p in patterns)]
    assert not found, found[:10]


def test_terms_that_make_no_sense_together_are_not_combined(prompts, pack):
    apart = {
        (term.term, name)
        for bank in pack.banks.values()
        for terms in bank.values()
        for term in terms
        for name in term.without
    }
    assert ("build {solid:a} from straws", "hexaflexagon") in apart
    together = {pair for p in prompts for pair in itertools.permutations(p.terms, 2)}
    assert not together & apart


def test_prompts_with_input_images_take_the_place_of_others(pack, prompts):
    count = 2000
    others = generate_bank(pack, BankSettings(input_image_share=0), count)
    assert not any(prompt.input_image_texts for prompt in others)
    replaced = 0
    for prompt, other in zip(prompts[:count], others, strict=True):
        assert (prompt.subcategory, prompt.shard, prompt.split) == (
            (other.subcategory, other.shard, other.split)
        )
        if prompt.input_image_texts:
            assert prompt.text.count("<image>") == len(prompt.input_image_texts)
            assert prompt.input_images == []  # they are drawn when the prompt is to be used
            replaced += 1
        elif not replaced:
            assert prompt == other
    unchanged = {prompt.prompt_id for prompt in prompts[:count]} & {o.prompt_id for o in others}
    assert 0.01 < replaced / count < 0.04
    assert len(unchanged) / (count - replaced) > 0.99
    assert any(len(prompt.input_image_texts or ()) == 2 for prompt in prompts)


def test_a_template_for_composite_pictures_takes_a_share_of_its_turns(tmp_path):
    stars = [f"star {chr(97 + n)}{chr(98 + n)}" for n in range(20)]
    small = small_pack(
        tmp_path,
        f"sky: {{entity: [{', '.join(stars)}]}}",
        "templates:\n  show: Show {entity:a}\n"
        "  poster: {text: 'Paint a poster of {entity:a}', composite: true}\n",
    )

    def posters(count, **settings):
        rows = generate_bank(small, BankSettings(heldout_share=0, **settings), count)
        return sum(row.template_id == "poster" for row in rows)

    assert posters(20, composite_turns=0) == 0
    assert posters(20, composite_turns=1) == 10
    assert posters(25, composite_turns=0) == 5  # the other template has no more fills


def test_tables_of_the_pack_have_unique_keys_and_all_terms(pack, prompts):
    for table, rows in pack_tables(pack).items():
        keys = [tuple(getattr(row, column) for column in table.key) for row in rows]
        assert len(set(keys)) == len(keys) == table.to_arrow(rows).num_rows
    terms = {row.term for row in pack_tables(pack)[VOCABULARY]}
    assert {term for prompt in prompts for term in prompt.terms} <= terms


def test_metadata_of_the_bank(bank):
    metadata = bank_metadata("interleave", bank)
    assert metadata["interleave/prompts"] == 40_000
    assert metadata["interleave/per_subcategory"] == "min 533, median 533, max 534"
    assert sum(metadata["interleave/splits"].values()) == 40_000
    assert metadata["interleave/near_duplicates"] == bank.near_duplicates
    sample = metadata["interleave/sample"].value.splitlines()
    assert len(sample) == 20
    assert {line.removeprefix("- ") for line in sample} <= {p.text for p in bank.prompts}


SKY = "sky: {entity: [cloud, star, moon]}\n"


def small_pack(folder, bank, templates):
    taxonomy = (
        "title: Small\ncategories: {c: {title: C, subcategories: "
        "{sky: {title: Sky, description: Up., banks: [sky]}}}}\n"
    )
    files = {"banks/sky.yaml": bank, "templates.yaml": templates, "taxonomy.yaml": taxonomy}
    return load_pack(write_pack(folder, files))


def test_shortage_error_names_count_and_banks_to_extend(tmp_path):
    templates = "templates:\n  show: Show {entity:a}\n  how: How do I show {entity:a}?\n"
    small = small_pack(tmp_path, SKY, templates)
    assert len(generate_bank(small, SETTINGS, 3)) == 3
    with pytest.raises(FoundryError) as caught:
        generate_bank(small, SETTINGS, 4)
    for part in ("gives 3 distinct prompts", "4 were asked", "'sky' has no more", "banks (sky)"):
        assert part in str(caught.value)


def test_numbered_slots_hold_different_terms(tmp_path):
    pair = 'templates:\n  pair: "{entity:a} and {entity#2:a}, {entity} first"\n'
    for prompt in generate_bank(small_pack(tmp_path, SKY, pair), SETTINGS, 3):
        match = re.fullmatch(r"An? (\w+) and an? (\w+), (\w+) first", prompt.text)
        one, other, first = match.groups()
        assert one != other
        assert one == first


# --- English ------------------------------------------------------------------------------------

VOWEL_LETTER_CONSONANT_SOUND = r"(?!uni|use|eu|one|ukulele|u-)"
CONSONANT_LETTER_VOWEL_SOUND = r"(?!hour|honest|heir|x-ray)"


def test_articles_agree(prompts):
    wrong = [
        prompt.text
        for prompt in prompts
        if re.search(rf"\ba {VOWEL_LETTER_CONSONANT_SOUND}[aeiou]", prompt.text, re.IGNORECASE)
        or re.search(rf"\ban {CONSONANT_LETTER_VOWEL_SOUND}[^aeiou\W]", prompt.text, re.IGNORECASE)
    ]
    assert not wrong, wrong[:10]


def test_every_verb_phrase_of_the_pack_has_a_gerund(pack):
    for row in pack_tables(pack)[VOCABULARY]:
        if row.kind == "action" and "{" not in row.term:
            first = apply_form(row.term, "gerund").split()[0]
            assert first.endswith("ing"), row.term


def test_forms():
    """Fixed terms take no article and no plural."""
    for phrase, form, expected in (
        ("open a jar", "gerund", "opening a jar"),
        ("visit a farm", "gerund", "visiting a farm"),
        ("set the table", "gerund", "setting the table"),
        ("tie a knot", "gerund", "tying a knot"),
        ("dye a shirt", "gerund", "dyeing a shirt"),
        ("wash and dry a plate", "gerund", "washing and drying a plate"),
        ("carry a box", "third", "carries a box"),
        ("do a flip", "third", "does a flip"),
        ("find a key", "past", "found a key"),
        ("hour", "a", "an hour"),
        ("unicycle", "a", "a unicycle"),
        ("loaf of bread", "plural", "loaves of bread"),
        ("knife", "plural", "knives"),
        ("violin", "the", "the violin"),
    ):
        assert apply_form(phrase, form) == expected
    assert {apply_form("moss", form, fixed=True) for form in ("a", "the", "plural")} == {"moss"}


def test_suffixes_join_the_sentence():
    for text, suffix, expected in (
        ("How to swim", "both ways", "How to swim both ways"),
        ("How to swim?", "both ways", "How to swim both ways?"),
        ("How to swim?", "Add captions.", "How to swim? Add captions."),
        ("Show a cat", "Add captions.", "Show a cat. Add captions."),
        ("Show a cat", "", "Show a cat"),
    ):
        assert append_suffix(text, suffix) == expected


def test_near_duplicate_index_equals_pairwise_comparison():
    index, added = NearDuplicates({"x": 1.0}), []
    for i in range(400):
        subject = frozenset({str(i % 7), str(i % 5 + 10), "x", "y", "z" if i % 2 else "y"})
        content = Content(subject, subject | {str(i % 4 + 30), "show", "step"})
        expected = not any(all(map(_at_least_four_fifths, content, other)) for other in added)
        assert index.add(content) == expected
        if expected:
            added.append(content)
    assert 1 < len(added) < 400


def _at_least_four_fifths(one, other):
    return len(one & other) / len(one | other) >= 0.8


def test_other_terms_in_a_long_template_are_no_duplicates():
    rest = frozenset(["split", "word", "sequential", "parts", "exact", "same", "artistic", "style"])
    index = NearDuplicates({})
    assert index.add(Content(frozenset({"sun"}), rest | {"sun"}))
    assert index.add(Content(frozenset({"moon"}), rest | {"moon"}))
    assert not index.add(Content(frozenset({"moon"}), rest | {"moon", "please"}))
