"""The CoMM importer on small files, hostile rows included."""

import json
import sys
from pathlib import Path

import pytest

from assets.curation.comm import import_comm
from assets.curation.planner_sets import build_planner_sft
from assets.curation.settings import CommSettings, CurationSettings
from inference.agent_prompts.templates import planner_turn
from inference.roles import PlanRequest
from schemas import FoundryError
from tests.assets.curation.curated_world import encoded_image


def text(content: object) -> dict:
    return {"type": "text", "content": content}


def image(path: object) -> dict:
    return {"type": "image", "image_path": path, "url": "http://localhost/never-fetched"}


def document(name: object, *steps: list[dict], title: str | None = "tea") -> dict:
    return {
        "data_id": name,
        "dataset_type": "wikihow",
        "title": title,
        "summary_info": [],
        "step_info": list(steps),
    }


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "comm"
    (folder / "pictures").mkdir(parents=True)
    for number in range(3):
        (folder / "pictures" / f"{number}.png").write_bytes(encoded_image(number).data)
    (folder / "broken.png").write_bytes(encoded_image(1).data[:40])
    (tmp_path / "secret.png").write_bytes(encoded_image(9).data)
    return folder


def write(folder: Path, documents: object, share: float = 0.0) -> CommSettings:
    path = folder / "documents.json"
    path.write_text(json.dumps(documents))
    return CommSettings(path=path, continuation_share=share)


def imported(world, folder: Path, documents: object, share: float = 0.0):
    """Rows, and what is quarantined."""
    return import_comm(world.home, write(folder, documents, share), "planner-interleaved")


def rest_of(row) -> list[tuple]:
    plan = json.loads(row.messages[1].content.split("<answer>")[1].removesuffix("</answer>"))
    return [
        (step["step_number"], step["instruction"], step["prompt"], step["auxiliary_text"])
        for step in plan["execution_plan"]
    ]


TEA = document(
    "tea-1",
    [text(" Boil  water. "), image("pictures/0.png")],
    [text("Add <image> leaves."), image("pictures/1.png"), image("pictures/2.png")],
    [text("Wait.")],
)


def test_document_becomes_a_request_for_the_text_of_its_images(world, folder):
    rows, quarantined = imported(world, folder, [TEA])
    (row,) = rows
    assert quarantined == []
    assert (row.row_id, row.source, row.prompt_id) == ("comm:tea-1", "comm", None)
    assert '"tea"' in row.messages[0].content
    assert row.messages[0].content.count("<image>") == len(row.images) == 3
    texts = ("Boil water.", "Add [image] leaves.", "Wait.")
    assert rest_of(row) == [(number, None, None, text) for number, text in enumerate(texts, 1)]
    assert world.home.images.get(row.images[1]).image.getpixel((0, 0)) == (1, 0, 77)


def test_document_becomes_first_steps_to_be_continued(world, folder):
    """The only cut with an image on both sides is after the first step."""
    (row,), _ = imported(world, folder, [TEA], share=1)
    assert (row.row_id, row.source, row.cut) == ("comm:tea-1", "comm_continuation", 1)
    question = row.messages[0].content
    assert '"tea"' in question and "\n(1) Boil water. <image>\n" in question
    assert "leaves" not in question
    assert question.count("<image>") == len(row.images) == 1
    assert row.messages[1].content.startswith("<think></think>")
    text = "Add [image] leaves."
    assert rest_of(row) == [(2, text, text, text), (3, None, None, "Wait.")]


def test_the_given_steps_are_asked_as_the_planner_is_at_work(world, folder):
    """The same message as for a user who sends these texts and pictures."""
    (row,), _ = imported(world, folder, [TEA], share=1)
    request = row.messages[0].content.split("Request:\n")[1].split("\n\n")[0]
    images = tuple(world.home.images.get(image) for image in row.images)
    turn = planner_turn(PlanRequest(request, images), "planner-text", "planner-interleaved")
    assert turn.text == row.messages[0].content


def numbered(name: str, steps: int) -> dict:
    return document(
        name, *([text(f"Step{n}: Do {n}"), image("pictures/0.png")] for n in range(1, steps + 1))
    )


def test_numbers_go_on_from_the_cut_and_are_not_in_the_texts(world, folder):
    (row,), _ = imported(world, folder, [numbered("n", 9)], share=1)
    rest = rest_of(row)
    assert 1 <= row.cut < 9 and [step[0] for step in rest] == list(range(row.cut + 1, 10))
    assert [step[3] for step in rest] == [f"Do {n}" for n in range(row.cut + 1, 10)]
    assert row.messages[0].content.count("<image>") == row.cut


def test_lead_ins_are_left_out(world, folder):
    written = {
        "Step 3: Mix it.": "Mix it.",
        "STEP 12 - Mix it.": "Mix it.",
        "(4) Mix it.": "Mix it.",
        "4. Mix it.": "Mix it.",
        "4.5 cups of water": "4.5 cups of water",
        "10 cups of water": "10 cups of water",
        "Step 3 is the hardest": "Step 3 is the hardest",
        "Step 3:": "Step 3:",
    }
    first = [text("a"), image("pictures/0.png")]
    documents = [document(each, first, [text(each), image("pictures/1.png")]) for each in written]
    rows, _ = imported(world, folder, documents, share=1)
    assert [rest_of(row) for row in rows] == [[(2, *[each] * 3)] for each in written.values()]


def test_share_and_cuts_follow_from_the_seed_alone(world, folder):
    documents = [numbered(f"d{n}", 8) for n in range(60)]
    comm = write(folder, documents, share=0.5)

    def cuts(seed: int, settings: CommSettings = comm) -> dict[str, int]:
        rows, _ = import_comm(world.home, settings, "planner-interleaved", seed)
        return {row.row_id: row.cut for row in rows}

    first = cuts(1)
    assert first == cuts(1) != cuts(2)
    assert 15 < sum(cut == 0 for cut in first.values()) < 45
    assert set(first.values()) == set(range(8))
    assert cuts(1, write(folder, documents[::-1], share=0.5)) == first


def test_documents_without_images_on_both_sides_of_a_cut_give_captions(world, folder):
    drawn, plain = [text("a"), image("pictures/0.png")], [text("b")]
    documents = [
        document(number, *steps)
        for number, steps in enumerate([[drawn], [drawn, plain], [plain, drawn]])
    ]
    rows, _ = imported(world, folder, documents, share=1)
    assert [(row.source, row.cut) for row in rows] == [("comm", 0)] * 3


def test_images_that_are_to_be_drawn_need_not_be_there(world, folder):
    steps = [[text("a"), image("pictures/0.png")], [text("b"), image("nowhere.png")]]
    (row,), quarantined = imported(world, folder, [document("x", *steps)], share=1)
    assert quarantined == [] and len(row.images) == 1


def test_unusable_documents_are_quarantined_with_a_reason(world, folder):
    unusable = [
        ("just text", "document: Input should be"),
        ({"data_id": "x"}, "step_info: Field required"),
        (document("x"), "step_info: List should have at least 1 item"),
        (document("x", [text(["no", "string"])]), "step_info.0.0.content: Input should be"),
        (document("x", [text("words only")]), "no images"),
        (document("x", [image("pictures/0.png")]), "step 1 has no text"),
        (document("x", [text("a"), image("../secret.png")]), "is outside of the image folder"),
        (document("x", [text("a"), image("/etc/hostname")]), "is outside of the image folder"),
        (document("x", [text("a"), image("nowhere.png")]), "'nowhere.png' cannot be read"),
        (document("x", [text("a"), image("a\0b")]), "cannot be read"),
        (document("x", [text("a"), image("broken.png")]), "cannot be decoded"),
        (document("x", [text("a"), image(None)]), "an image without image_path"),
        (document("x", *[[text("a"), image("pictures/0.png")]] * 31), "31 steps, more than 30"),
        (document("tea-1", [text("a"), image("pictures/0.png")]), "the same data_id"),
    ]
    documents = [TEA, *(raw for raw, _ in unusable)]
    for number, raw in enumerate(documents):
        if isinstance(raw, dict) and raw["data_id"] == "x":
            documents[number] = {**raw, "data_id": f"x{number}"}
    rows, quarantined = imported(world, folder, documents)
    assert [row.row_id for row in rows] == ["comm:tea-1"]
    for (_, reason), (_, message) in zip(unusable, quarantined, strict=True):
        assert reason in message and "\n" not in message


def test_json_lines_with_a_broken_line(world, folder):
    path = folder / "documents.jsonl"
    path.write_text(json.dumps(TEA) + "\n{broken\n")
    rows, quarantined = import_comm(world.home, CommSettings(path=path), "planner-interleaved")
    assert len(rows) == len(quarantined) == 1


def test_file_without_a_list_of_documents_is_an_error(world, folder):
    with pytest.raises(FoundryError, match=r"documents\.json cannot be read: it is no list"):
        imported(world, folder, {"a": 1})
    with pytest.raises(FoundryError, match=r"missing\.json: cannot be read"):
        import_comm(world.home, CommSettings(path=folder / "missing.json"), "planner-interleaved")


def test_torch_file_is_read_or_names_the_missing_package(world, folder, monkeypatch):
    torch, comm = pytest.importorskip("torch"), CommSettings(path=folder / "documents.pt")
    torch.save([TEA], comm.path)
    rows, _ = import_comm(world.home, comm, "planner-interleaved")
    assert [row.row_id for row in rows] == ["comm:tea-1"]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FoundryError, match=r"reading \.pt files needs torch"):
        import_comm(world.home, comm, "planner-interleaved")


def test_imported_rows_join_the_planner_set(world, folder):
    world.add("s", [(9, True)], [(9, True)])
    comm = write(folder, [TEA, "bad", numbered("n", 9)], share=0.5)
    settings = CurationSettings(planner={"comm": comm, "seed": 2})
    rows, quarantined = build_planner_sft(world.write(), settings)
    sources = rows.read_all()["source"].to_pylist()
    assert sources == ["plan", "continuation", "comm", "comm_continuation"]
    assert [name for name, _ in quarantined] == ["comm:document 1"]
