"""Pictures that come with prompts: drawn once, over real HTTP as well, or taken from a folder."""

import json
from pathlib import Path

import dagster as dg
import pytest

from assets.core.foundry import FoundryResource
from assets.prompts.input_images import add_input_images, folder_digest
from assets.prompts.pack_loader import load_pack
from inference.calls.progress import NullProgress
from inference.sketch_world.perception import perceive_cached
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, Thing
from schemas import DocumentError, FoundryError
from schemas.curation import PLANNER_SFT
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import MODEL_CALLS, PLANS, TRAJECTORIES
from tests.assets.prompts.tiny_pack import write_pack
from tests.helpers.ticks import materialize
from tests.inference.backends.providers.faulty_provider import KEY, FaultSchedule, provider
from warehouse import EncodedImage

PACK = {
    "taxonomy.yaml": "title: Garden\ncategories: {out: {title: Out, subcategories: {garden: "
    "{title: Garden, description: What is in it., banks: [garden]}}}}\n",
    "banks/garden.yaml": "garden:\n  view:\n"
    "    - {term: a red house on a meadow, fixed: true}\n"
    "    - {term: a green tree on a meadow, fixed: true}\n"
    "  guest: [yellow sun, purple flower, brown dog, blue bird, white cloud]\n",
    "templates.yaml": "templates:\n  draw: 'Draw {guest:a} and {guest#2:a} on a meadow'\n"
    "  add:\n    text: 'In this picture <image>, add {guest:a} and then {guest#2:a}'\n"
    "    input_images: ['Draw {view}.']\n",
}
ROLES = dict.fromkeys(("planner", "generator", "critic", "scorer"), "sketch")
PACK_ASSETS = ("taxonomy", "vocabulary", "templates", "prompts")
VIEWS = {"Draw a red house on a meadow.", "Draw a green tree on a meadow."}


@pytest.fixture
def pack(tmp_path) -> Path:
    return write_pack(tmp_path / "garden-pack", PACK)


def foundry_of(tmp_path: Path, pack: Path, **sections) -> FoundryResource:
    changed = {
        "pack": str(pack),
        "banks": {},
        "sizes": {"demo": 1},
        "bank": {"shard_size": 10, "heldout_share": 0, "input_image_share": 0.5},
        "sketch": {"picture_size": 96},
        **sections,
    }
    root, own = str(tmp_path / "home"), json.dumps(changed)
    return FoundryResource(profile="sketch", root=root, size="demo", sections=own)


def drawn_at(server) -> dict[str, object]:
    """Sections of a profile whose generator is at a server."""
    endpoints = [{"url": server.url, "key": "TEST_KEY"}]
    gemini = {"endpoints": endpoints, "generator": {"model": "banana"}}
    return {"roles": ROLES | {"generator": "gemini"}, "gemini": gemini}


def with_pictures(foundry: FoundryResource) -> list[PromptRow]:
    return [row for row in foundry.rows(PROMPTS) if row.input_image_texts]


@pytest.mark.slow
def test_drawn_pictures_go_through_the_lineage(tmp_path, pack):
    foundry, instance = foundry_of(tmp_path, pack), dg.DagsterInstance.ephemeral()
    materialize(foundry, instance, PACK_ASSETS)
    shard = "garden-pack-0000"
    materialize(foundry, instance, ["plans", "trajectories"], partition_key=shard)
    materialize(foundry, instance, ["planner_sft"])
    rows = with_pictures(foundry)
    assert {text for row in rows for text in row.input_image_texts or ()} == VIEWS
    for row in rows:
        (sha256,) = row.input_images
        assert perceive_cached(foundry.home.images.get(sha256)).scene.background == "meadow"
    statuses = {row.prompt_id: row.status for row in foundry.rows(TRAJECTORIES)}
    assert {statuses[row.prompt_id] for row in rows} <= {"complete", "exhausted"}
    planned = {plan.prompt_id: plan.step_number for plan in foundry.rows(PLANS)[::-1]}
    assert {planned[row.prompt_id] for row in rows} == {2}  # the given picture is the first step
    samples = {row.prompt_id: row.images for row in foundry.rows(PLANNER_SFT)}
    assert all(samples[row.prompt_id][:1] == row.input_images for row in rows)
    calls = [call for call in foundry.rows(MODEL_CALLS) if call.asset == "prompts"]
    assert {call.prompt_id for call in calls} == VIEWS and len(calls) == 2


def test_a_provider_draws_each_picture_once(tmp_path, pack, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    instance = dg.DagsterInstance.ephemeral()
    with provider(FaultSchedule({"error": 0.3, "throttle": 0.2}, seed=3)) as server:
        limits = {"backoff_seconds": 0.01, "tries": 8}
        foundry = foundry_of(tmp_path, pack, **drawn_at(server), limits=limits)
        materialize(foundry, instance, PACK_ASSETS)
        first = foundry.rows(PROMPTS)
        assert sorted(server.answered.values()) == [1, 1]
        foundry.home.lake.delete(PROMPTS, "garden-pack-0000")  # the journal still has the calls
        materialize(foundry, instance, ["prompts"])
        assert foundry.rows(PROMPTS) == first and sum(server.answered.values()) == 2
    calls = foundry.rows(MODEL_CALLS)
    assert [(call.role, call.asset, call.error) for call in calls] == 2 * [
        ("generator", "prompts", None)
    ]


def add_to(foundry: FoundryResource, rows: list[PromptRow]) -> list[PromptRow]:
    given, _ = add_input_images(foundry, "garden", rows, lambda row: True, NullProgress())
    return given


def prompt(number: int, *texts: str) -> PromptRow:
    ids = dict.fromkeys(("pack", "category", "subcategory", "template_id"), "garden")
    return PromptRow(
        **ids,
        prompt_id=f"garden-{number}",
        text="Add a sun <image>",
        terms=[],
        suffix=None,
        input_images=[],
        shard="garden-0000",
        split="train",
        input_image_texts=list(texts) or None,
    )


def test_a_folder_has_pictures_by_what_they_show(tmp_path, pack):
    folder = tmp_path / "mine"
    folder.mkdir()
    house = EncodedImage.of(render(Scene("beach", {0: Thing("house", "red")})))
    (folder / "red-house.png").write_bytes(house.data)
    (folder / "house.png").write_bytes(EncodedImage.of(render(Scene("sea"))).data)
    foundry = foundry_of(tmp_path, pack, prompts={"input_images": str(folder)})
    rows = [prompt(0, "Draw a red house on a meadow."), prompt(1, "Draw a tree."), prompt(2)]
    with_house, with_tree, without = add_to(foundry, rows)
    assert with_house.input_images == [house.sha256]
    assert with_tree.input_images and with_tree.input_images != [house.sha256]
    assert without == rows[2]
    before = folder_digest(folder)
    (folder / "tree.png").write_bytes(house.data)
    assert folder_digest(folder) != before
    with pytest.raises(FoundryError, match="no folder"):
        folder_digest(tmp_path / "nowhere")


def test_pictures_of_earlier_prompts_are_not_drawn_again(tmp_path, pack):
    foundry = foundry_of(tmp_path, pack)
    (first,) = add_to(foundry, [prompt(0, "Draw a tree.")])
    sea = foundry.home.images.put(EncodedImage.of(render(Scene("sea"))))
    earlier = first.model_copy(update={"input_images": [sea]})
    foundry.home.lake.write(PROMPTS, [earlier], "garden-0000")
    assert add_to(foundry, [prompt(1, "Draw a tree.")])[0].input_images == [sea]


def test_a_prompt_whose_picture_is_refused_is_left_out(tmp_path, pack, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider() as server:
        server.scripts = ["refuse", "refuse"]
        foundry = foundry_of(tmp_path, pack, **drawn_at(server))
        given = add_to(foundry, [prompt(0, "Draw a tree."), prompt(1)])
    assert [row.prompt_id for row in given] == ["garden-1"]


def test_every_picture_has_its_place_in_the_text(pack):
    for text in ("Add {guest:a}", "Add {guest:a} <image> <image>"):
        (pack / "templates.yaml").write_text(
            f"templates:\n  add: {{text: '{text}', input_images: ['Draw {{view}}.']}}\n"
        )
        with pytest.raises(DocumentError, match=r"templates\.add: .*<image>"):
            load_pack(pack)
