"""The studio's routes: the page and its examples without a key, generations for their own key."""

import io
import json
import re
import zipfile

import httpx
import pytest

from assets.prompts.pack_loader import load_pack
from inference.backends.sketch.backend import SketchPlanner
from inference.events import LazyImage
from inference.generation.requests import GenerationRequest
from inference.http.auth import Keys
from inference.roles import PlanRequest
from inference.service.run import GenerationRun
from inference.service.studio.router import STATIC_FOLDER
from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.story_catalog import choose_story
from tests.inference.service.running_service import REDRAWN, SNOWMAN, error_of, running_service
from warehouse import EncodedImage, Home

KEYS = ("mine", "yours")
EXAMPLES = json.loads((STATIC_FOLDER / "examples.json").read_text())


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(Home(tmp_path_factory.mktemp("studio")), keys=KEYS) as service:
        yield service


@pytest.fixture(scope="module")
def created(service):
    """The response of a story that was created with the first key."""
    headers = {"Authorization": "Bearer mine"}
    return service.post("/v1/responses", json={"input": SNOWMAN}, headers=headers).json()


def http_client(service, key: str | None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=service.url, headers=headers, timeout=60)


@pytest.fixture
def client(service):
    with http_client(service, "mine") as client:
        yield client


@pytest.fixture
def anonymous(service):
    with http_client(service, None) as client:
        yield client


def picture_path(response, sha256: str) -> str:
    return f"/studio/generations/{response['id']}/pictures/{sha256}"


def store_request(service, name: str, text: str, input_images=(), created_at=0) -> None:
    """A queued request of the first key's owner."""
    owner = Keys(KEYS).owner(b"Bearer mine")
    fields = {"created_at": created_at, "model": "interleave"}
    images = tuple(LazyImage(service.manager.home.images, sha256) for sha256 in input_images)
    request = GenerationRequest(text, images, generation_id=name.removeprefix("resp_"))
    service.manager.store.begin(GenerationRun(owner, request, fields))


def test_page_and_its_files_need_no_key(anonymous):
    page = anonymous.get("/")
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="(studio/[^"]+)"', page.text)
    assert len(named) >= 3
    for name in named:
        assert anonymous.get(name).status_code == 200, name


def test_modules_import_each_other_and_all_are_used(anonymous):
    names, queue = set(), ["app.js"]
    while queue:
        name = queue.pop()
        names.add(name)
        answer = anonymous.get(f"/studio/static/{name}")
        assert answer.status_code == 200, name
        assert "javascript" in answer.headers["content-type"]
        queue += set(re.findall(r'from "\./([\w.]+)"', answer.text)) - names
    assert names == {path.name for path in STATIC_FOLDER.glob("*.js")}, "a module is unused"


def test_content_policy_allows_no_other_hosts(anonymous):
    for path in ("/", "/studio/static/app.js"):
        policy = anonymous.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


def test_files_name_no_other_host_and_insert_no_markup():
    unwanted = "https?:|//cdn|innerHTML|insertAdjacentHTML|document.write"
    for file in STATIC_FOLDER.glob("*.*"):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(unwanted, text), file


def test_no_other_file_is_served(client):
    for name in ("..%2frouter.py", "%2e%2e/router.py", "/etc/passwd", "examples", "", "a%00b"):
        error_of(client.get(f"/studio/static/{name}"), 404)


def test_generations_are_listed_and_found_by_words(client, created):
    found = client.get("/studio/generations", params={"query": "SNOWMAN build"}).json()
    (story,) = found["generations"]
    assert found["next_offset"] is None and found["total"] == 1
    assert (story["id"], story["text"], story["images"]) == (created["id"], SNOWMAN, 4)
    assert story["status"] == "complete"
    assert story["cover"] == created["interleave"]["steps"][-1]["image"]
    assert client.get("/studio/generations", params={"query": "tulip"}).json()["generations"] == []


def test_list_has_pages(client, service):
    for number in range(30):
        store_request(service, f"resp_{number}", "a cat", created_at=number)
    first = client.get("/studio/generations", params={"query": "cat"}).json()
    rest = {"query": "cat", "offset": first["next_offset"]}
    second = client.get("/studio/generations", params=rest).json()
    listed = first["generations"] + second["generations"]
    assert [each["id"] for each in listed] == [f"resp_{n}" for n in reversed(range(30))]
    assert second["next_offset"] is None and first["total"] == second["total"] == 30
    assert listed[-1] == {
        "id": "resp_0",
        "text": "a cat",
        "created_at": "1970-01-01T00:00:00Z",
        "status": "queued",
        "cover": None,
        "images": 0,
        "model": "interleave",
        "reason": None,
    }


def test_story_has_its_response_and_pictures(client, created):
    story = client.get(f"/studio/generations/{created['id']}").json()
    assert story["response"]["interleave"] == created["interleave"] and story["input_images"] == []
    sha256 = created["interleave"]["steps"][0]["image"]
    picture = client.get(picture_path(created, sha256))
    assert EncodedImage(picture.content).sha256 == sha256
    assert picture.headers["content-type"] == "image/png"
    assert "private" in picture.headers["cache-control"]


def test_downloads_contain_the_story(client, created):
    page = client.get(f"/studio/generations/{created['id']}.html")
    expected = f'attachment; filename="story-{created["id"]}.html"'
    assert page.headers["content-disposition"] == expected
    assert page.headers["content-security-policy"] == "sandbox"
    assert SNOWMAN in page.text and page.text.count("data:image/png") >= 4
    markdown = client.get(f"/studio/generations/{created['id']}.md")
    assert markdown.text.startswith(f"# {SNOWMAN}")
    packed = client.get(f"/studio/generations/{created['id']}.zip")
    names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    assert {"story.html", "story.md"} < set(names) and len(names) >= 6


def test_generations_of_other_keys_are_not_found(service, created):
    with http_client(service, "yours") as client:
        assert client.get("/studio/generations").json()["generations"] == []
        for name in (created["id"], f"{created['id']}.zip", "resp_none"):
            error_of(client.get(f"/studio/generations/{name}"), 404)


def test_pictures_are_read_with_the_key_of_their_response_alone(service, client):
    created = client.post("/v1/responses", json={"input": REDRAWN}).json()
    attempts = [each for step in created["interleave"]["steps"] for each in step["attempts"]]
    rejected = next(each for each in attempts if not each["accepted"])
    body = {"input": "a red house", "previous_response_id": created["id"]}
    following = client.post("/v1/responses", json=body).json()
    input_image = following["interleave"]["input_images"][0]
    other = following["interleave"]["steps"][-1]["image"]
    paths = [
        picture_path(created, rejected["image"]),
        picture_path(following, input_image),
        picture_path(following, other),
    ]
    assert [client.get(path).status_code for path in paths] == [200] * 3
    error_of(client.get(picture_path(created, other)), 404)
    with http_client(service, "yours") as stranger:
        own = stranger.post("/v1/responses", json={"input": "a cat"}).json()
        for path in (*paths, picture_path(own, other), f"/studio/pictures/{other}"):
            error_of(stranger.get(path), 404)


def test_a_refusal_says_why_and_a_response_what_it_follows(client, created):
    client.post("/v1/responses", json={"input": "hello"})
    refusal = client.get("/studio/generations", params={"query": "hello"}).json()["generations"][0]
    assert refusal["cover"] is None and "illustrate" in refusal["reason"]
    body = {"input": "a green house", "previous_response_id": created["id"]}
    following = client.post("/v1/responses", json=body).json()
    stored = client.get(f"/studio/generations/{following['id']}").json()
    assert stored["follows"]["id"] == created["id"] and stored["follows"]["text"] == SNOWMAN


def test_settings_are_those_of_the_service(anonymous, service):
    settings = anonymous.get("/studio/settings").json()
    limits = service.manager.settings.limits
    assert settings["limits"]["t_max"] == limits.t_max
    assert settings["limits"]["images"] == limits.pictures
    assert settings["limits"]["max_steps"] == limits.steps
    assert settings["defaults"]["t_max"] == 5 and settings["conditioning"] == ["last"]
    assert [model["id"] for model in settings["models"]] == ["interleave"]
    assert settings["image_types"] == ["image/png", "image/jpeg", "image/webp"]


def test_malformed_ids_are_rejected(client):
    for path in ("/a b", "/a.html.html", "/x.pdf", "?offset=-1", "/x/pictures/0"):
        error_of(client.get(f"/studio/generations{path}"), 400)
    error_of(client.get("/studio/generations/x/pictures/..%2f..%2fx"), 404)


def test_missing_picture_is_a_410(client, service, created):
    store_request(service, "resp_lost", "lost", ["0" * 64])
    answer = client.get("/studio/generations/resp_lost.html")
    error_of(answer, 410)
    assert str(service.manager.home.local) not in answer.text
    error_of(client.get("/studio/generations/resp_lost/pictures/" + "0" * 64), 404)


def test_queued_story_can_be_opened(client, service):
    store_request(service, "resp_waiting", "waiting")
    story = client.get("/studio/generations/resp_waiting").json()
    assert (story["status"], story["input_images"]) == ("queued", [])


def test_every_category_has_an_example():
    categories = load_pack("sketchbook").taxonomy.categories
    assert {each["category"]: each["title"] for each in EXAMPLES} == {
        name: category.title for name, category in categories.items()
    }


async def test_examples_have_a_plan_a_story_and_an_image():
    for example in EXAMPLES:
        plan = await SketchPlanner().plan(PlanRequest(example["text"]))
        assert len([step for step in plan.steps if step.prompt]) >= 4, example
        assert choose_story(RequestText(example["text"])), "things to draw, but no story"
        assert (STATIC_FOLDER / "examples" / f"{example['category']}.png").is_file()
