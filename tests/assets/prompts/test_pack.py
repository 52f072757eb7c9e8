"""Packs load; errors name the file, line and key to edit."""

from pathlib import Path

import pytest

from assets.prompts.pack_loader import load_pack
from schemas import DocumentError, FoundryError
from tests.assets.prompts.tiny_pack import write_pack

TAXONOMY = """\
title: Little world
categories:
  science:
    title: Science
    subcategories:
      garden:
        title: Garden
        description: Plants.
        banks: [plants]
"""
BANKS = """\
plants:
  entity:
    - sunflower
    - {term: moss, fixed: true}
  action:
    - water {entity:a}
"""
TEMPLATES = """\
templates:
  how-to: How to {action}
  growth:
    text: Show {plants.entity:a} growing
    for: [garden]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {TAXONOMY_FILE: TAXONOMY, BANK_FILE: BANKS, TEMPLATE_FILE: TEMPLATES}
    return write_pack(tmp_path, files)


def load_error(folder: Path, file: str, old: str, new: str) -> str:
    """The error after `old` in a file is replaced by `new`."""
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DocumentError) as caught:
        load_pack(folder)
    return str(caught.value)


def test_a_pack_is_loaded_and_its_digest_depends_on_content_not_on_layout(folder):
    pack = load_pack(folder)
    assert pack.name == folder.name
    assert pack.serves == {"how-to": ["garden"], "growth": ["garden"]}
    before = pack.digest
    (folder / "taxonomy.yaml").write_text("# a comment\n" + TAXONOMY)
    assert load_pack(folder).digest == before
    (folder / "banks" / "plants.yaml").write_text(BANKS.replace("sunflower", "tulip"))
    assert load_pack(folder).digest != before


TAXONOMY_FILE, BANK_FILE, TEMPLATE_FILE = "taxonomy.yaml", "banks/plants.yaml", "templates.yaml"
SUFFIX = "suffixes:\n  - {text: twice, for: [nowhere]}\ncategories:"
MISTAKES = {
    TAXONOMY_FILE: [
        ("[plants]", "[plants, rocks]", 9, "banks.1: no bank 'rocks'"),
        ("banks: [plants]", "banks: []", 9, "garden.banks: "),
        ("categories:", SUFFIX, 3, "suffixes.0.for.0: no template 'nowhere'"),
    ],
    TEMPLATE_FILE: [
        ("{action}", "{stroll}", 2, "how-to.text: slot {stroll} names a kind"),
        ("{plants.entity:a}", "{rocks.entity:a}", 4, "growth.text: slot {rocks.entity} names no"),
        ("{action}", "{action:gerundive}", 2, "has no form 'gerundive'"),
        ("{action}", "{action", 2, "has a brace that is no"),
        ("How to {action}", "How to draw", 2, "at least one {slot}"),
        ("How to {action}", "How  to {action}", 2, "twice in a row"),
        ("[garden]", "[meadow]", 5, "for.0: no category or sub-category 'meadow'"),
        ("for: [garden]", "except: [science]", 3, "templates.growth: serves no sub-category"),
        (
            "[garden]",
            "[garden]\n    without: [fern]",
            3,
            "growth: without: no slot can hold 'fern'",
        ),
    ],
    BANK_FILE: [
        ("  action:", "  plants: []\n  action:", 5, "plants.plants: "),
        ("- sunflower", "- 7", 3, "entity.0: "),
        ("- sunflower", "- moss", 4, "entity.1: 'moss' is also item 0"),
        ("{entity:a}", "{rose:a}", 6, "action.0: slot {rose} names a kind"),
        ("fixed: true", "gerund: '{x}'", 4, "form 'gerund' has other slots"),
    ],
}


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "message"),
    [(file, *mistake) for file, mistakes in MISTAKES.items() for mistake in mistakes],
)
def test_error_names_file_line_and_key(folder, file, old, new, line, message):
    problems = load_error(folder, file, old, new).splitlines()
    assert any(p.startswith(f"{folder / file}:{line}: ") and message in p for p in problems), (
        problems
    )


def test_contradictions_between_files_are_errors(folder):
    again = folder / "banks" / "again.yaml"
    again.write_text("plants:\n  entity: [rose]\n")
    with pytest.raises(DocumentError, match=r"plants\.yaml:1: plants: again\.yaml has a bank"):
        load_pack(folder)
    again.unlink()
    text = TAXONOMY + "      empty: {title: Empty, description: None., banks: [stones]}\n"
    (folder / "taxonomy.yaml").write_text(text)
    (folder / "banks" / "stones.yaml").write_text("stones:\n  stone: [granite]\n")
    with pytest.raises(DocumentError, match=r"taxonomy\.yaml:10: .*empty: no template serves"):
        load_pack(folder)
    for path in (folder / "banks").iterdir():
        path.unlink()
    with pytest.raises(DocumentError, match=r"banks: holds no \*\.yaml file"):
        load_pack(folder)


def test_all_problems_of_a_file_are_reported_at_once(folder):
    message = load_error(folder, "templates.yaml", "{action}", "{stroll} {climb}")
    assert "{stroll}" in message
    assert "{climb}" in message


def test_unknown_pack_lists_the_known_ones():
    with pytest.raises(FoundryError, match=r"no pack 'nonsense'; there are: .*interleave"):
        load_pack("nonsense")


def test_interleave_has_the_papers_counts():
    pack = load_pack("interleave")
    both = [bank for bank, kinds in pack.banks.items() if {"entity", "action"} <= set(kinds)]
    assert len(pack.taxonomy.categories) == 8
    assert len(pack.subcategories) == 75
    assert len(both) >= 30
    assert len(pack.templates) >= 100
    known = {"biology", "cooking", "physics", "exercise", "landscape", "music", "games", "diagram"}
    assert known | {"story"} <= set(pack.subcategories)
