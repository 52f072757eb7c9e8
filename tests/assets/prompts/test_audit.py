"""The asset `prompt_audit`: rules on real prompts, its checks, and a judge over real HTTP."""

import json

import pytest

from assets.core.foundry import FoundryResource
from assets.prompts.audit import audit_by_rules, audit_shares, sample_prompts
from assets.prompts.bank import generate_bank
from assets.prompts.pack import pack_tables
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import AuditSettings, BankSettings
from schemas.prompts import PROMPT_AUDITS, PROMPTS, TEMPLATES, PromptAuditRow, TemplateRow
from schemas.trajectories import MODEL_CALLS
from tests.helpers.ticks import materialize_alone
from tests.inference.backends.providers.faulty_provider import KEY, provider
from warehouse import Home

FINE = '{"natural": true, "feasible": true, "in_category": true, "several_pictures": %s}'


@pytest.fixture
def home(tmp_path) -> Home:
    """A home with 60 prompts of the sketch world's pack."""
    home, pack = Home(tmp_path / "home"), load_pack("sketchbook")
    for table, rows in pack_tables(pack).items():
        home.lake.write(table, rows)
    home.lake.write(PROMPTS, generate_bank(pack, BankSettings(), 60), "sketchbook-0000")
    return home


def foundry_of(home: Home, **sections) -> FoundryResource:
    return FoundryResource(profile="sketch", root=home.root, sections=json.dumps(sections))


def test_a_sample_is_audited_by_rules(home):
    foundry = foundry_of(home, prompts={"audit": {"sample": 40}})
    metadata, checks = materialize_alone(foundry, "prompt_audit")
    rows = foundry.rows(PROMPT_AUDITS)
    assert len(rows) == 40 and {row.auditor for row in rows} == {"rules"}
    assert "several_images" in metadata["shares"]
    names = ("natural", "feasible", "in_category", "several_images")
    assert checks == dict.fromkeys((*names, "keys_unique", "references_hold"), True)


def test_a_model_judges_the_same_sample_once(home, monkeypatch):
    """An answer that cannot be read is missing, and no false."""
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider() as server:
        endpoints = [{"url": f"{server.url}/v1", "key": "TEST_KEY"}]

        def judged_by(model: str, answer: str) -> tuple[dict[str, bool], list[PromptAuditRow]]:
            server.audit = answer
            judge = {"backend": "openai", "model": {"model": model}}
            audit = {"sample": 12, "judge": judge}
            openai = {"endpoints": endpoints}
            foundry = foundry_of(home, prompts={"audit": audit}, openai=openai)
            _, checks = materialize_alone(foundry, "prompt_audit")
            rows = [row for row in foundry.rows(PROMPT_AUDITS) if row.auditor != "rules"]
            assert len(rows) == 12
            return checks, rows

        read = f"<think>x</think><answer>{FINE % 'false'}</answer>"
        for answer in (read, "no JSON"):  # the second one is not asked for
            checks, rows = judged_by("m-1", answer)
            assert checks["natural"] and not checks["several_images"]
            assert not any(row.several_images for row in rows)
            assert sum(server.answered.values()) == 12
        _, rows = judged_by("m-2", "I would rather not say.")
    assert [row.natural for row in rows] == [None] * 12 and all(row.reason for row in rows)
    assert [share["auditor"] for share in audit_shares(rows, "natural")] == []
    calls = foundry_of(home).rows(MODEL_CALLS)
    assert {row.asset for row in calls} == {"prompt_audit"}


def test_samples_are_stable_and_of_every_pack(home):
    first = sample_prompts(home, AuditSettings(sample=20))
    assert sample_prompts(home, AuditSettings(sample=20)) == first and len(first) == 20
    assert {p.prompt_id for p in first} < {
        p.prompt_id for p in sample_prompts(home, AuditSettings())
    }
    assert sample_prompts(home, AuditSettings(sample=20, seed=1)) != first


def test_rules_find_what_is_wrong():
    (prompt,) = generate_bank(load_pack("sketchbook"), BankSettings(), 1)

    def faults(text, **changes):
        row = audit_by_rules(prompt.model_copy(update={"text": text, **changes}))
        return [
            name for name in ("natural", "feasible", "several_images") if not getattr(row, name)
        ]

    assert faults("How does the the moon shine?") == ["natural"]
    assert faults("How to draw {entity}") == ["natural"]
    assert faults("How do I draw the rest from the existing steps.") == ["feasible"]
    assert faults("How do I draw the rest from the existing steps.", input_images=["a" * 64]) == []
    assert faults("Draw a day on the farm as a comic strip") == ["several_images"]
    assert faults("How to make a poster?") == []
    assert faults("Turn this photo <image> into a drawing, layer by layer") == ["feasible"]
    assert faults("Turn this photo <image> into a drawing", input_image_texts=["a cat"]) == []
    elsewhere = TemplateRow(
        pack="p", template_id="t", text="{x}", subcategories=["elsewhere"], heldout=False
    )
    assert not audit_by_rules(prompt, elsewhere).in_category


def test_prompts_for_one_picture_are_found():
    texts = [
        ("Show a zebra crossing at dawn and describe what can be seen", False),
        ("Show a globe in the style of a picture book and describe the picture", False),
        ("Show a sea otter as it starts to search for food, and describe its behaviour", False),
        ("Show a puffin waking up in the first snow, and describe the scene", False),
        ("Show a coal miner who is about to take a break, and describe the face", False),
        ("Show a jazz singer by a frozen lake and describe clothes and posture", False),
        ("Paint a fjord after a thunderstorm", False),
        ("Show a globe first in the style of a woodcut, then in the style of a comic", True),
        ("Show three photos of a zebra crossing taken at dawn, and describe each", True),
        ("Show how to build a sundial", True),
        ("Draw a castle from simple shapes, adding one detail per picture", True),
        ("How to build a sundial", True),
    ]
    (prompt,) = generate_bank(load_pack("sketchbook"), BankSettings(), 1)
    for text, several in texts:
        row = audit_by_rules(prompt.model_copy(update={"text": text}))
        assert row.several_images == several, text


def test_the_rules_find_nothing_in_the_bank_but_composites():
    pack = load_pack("interleave")
    templates = {row.template_id: row for row in pack_tables(pack)[TEMPLATES]}
    composites = 0
    for prompt in generate_bank(pack, BankSettings(), 1000):
        template = templates[prompt.template_id]
        row = audit_by_rules(prompt, template)
        assert row.natural and row.feasible and row.in_category, (prompt.text, row.reason)
        assert row.several_images is not template.composite, prompt.text
        composites += template.composite
    assert 5 < composites < 50
