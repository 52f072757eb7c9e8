"""The studio's routes: the page for everybody, earlier stories for those who asked for them."""

import io
import re
import zipfile

import httpx
import pytest

from inference.http.auth import Keys
from inference.service.response_store import StoredResponse
from inference.service.studio.files import FOLDER
from tests.inference.service.running_service import SNOWMAN, error_of, running
from warehouse import EncodedImage, Home

KEYS = ("mine", "yours")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(Home(tmp_path_factory.mktemp("studio")), keys=KEYS) as service:
        yield service


@pytest.fixture(scope="module")
def told(service):
    """A story that was asked for with the first key."""
    headers = {"Authorization": "Bearer mine"}
    return service.post("/v1/responses", json={"input": SNOWMAN}, headers=headers).json()


def visitor(service, key: str | None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=service.url, headers=headers, timeout=60)


@pytest.fixture
def client(service):
    with visitor(service, "mine") as client:
        yield client


@pytest.fixture
def stranger(service):
    with visitor(service, None) as client:
        yield client


def keep(service, name: str, text: str, response: dict | None = None, **more) -> None:
    """A story of the first key's owner."""
    owner = Keys(KEYS).owner(b"Bearer mine")
    service.service.library.begin(
        StoredResponse(name, owner, text, "in_progress", response or {}, **more)
    )


def test_the_page_and_all_that_it_names_need_no_key(stranger):
    page = stranger.get("/")
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="(studio/[^"]+)"', page.text)
    assert len(named) >= 3
    for name in named:
        assert stranger.get(name).status_code == 200, name


def test_modules_name_each_other_and_no_others(stranger):
    seen, ahead = set(), ["app.js"]
    while ahead:
        name = ahead.pop()
        seen.add(name)
        answer = stranger.get(f"/studio/static/{name}")
        assert answer.status_code == 200, name
        assert "javascript" in answer.headers["content-type"]
        ahead += set(re.findall(r'from "\./([\w.]+)"', answer.text)) - seen
    assert seen == {path.name for path in FOLDER.glob("*.js")}, "a module that nobody uses"


@pytest.mark.parametrize("path", ["/", "/studio/static/app.js"])
def test_the_page_may_load_nothing_from_elsewhere(stranger, path):
    policy = stranger.get(path).headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.*")), ids=lambda file: file.name)
def test_no_file_names_another_place_or_makes_markup_of_texts(file):
    text = file.read_text().replace("http://www.w3.org/2000/svg", "")
    for word in ("http:", "https:", "//cdn", "innerHTML", "insertAdjacentHTML", "document.write"):
        assert word not in text


@pytest.mark.parametrize(
    "name",
    ["..%2fpages.py", "%2e%2e/pages.py", "/etc/passwd", "examples", "", "a%00b"],
)
def test_no_other_file_is_served(client, name):
    error_of(client.get(f"/studio/static/{name}"), 404)


def test_stories_are_listed_and_found_by_their_words(client, told):
    found = client.get("/studio/stories", params={"words": "SNOWMAN build"}).json()
    (story,) = found["stories"]
    assert found["next_offset"] is None
    assert (story["id"], story["text"], story["pictures"]) == (told["id"], SNOWMAN, 4)
    assert story["status"] == "complete"
    assert story["cover"] == told["interleave"]["steps"][-1]["picture"]
    assert client.get("/studio/stories", params={"words": "tulip"}).json()["stories"] == []


def test_the_list_goes_on_where_it_ended(client, service):
    for number in range(30):
        keep(service, f"resp_{number}", "a cat", created_at=float(number))
    first = client.get("/studio/stories", params={"words": "cat"}).json()
    rest = {"words": "cat", "offset": first["next_offset"]}
    second = client.get("/studio/stories", params=rest).json()
    stories = first["stories"] + second["stories"]
    assert [each["id"] for each in stories] == [f"resp_{n}" for n in reversed(range(30))]
    assert second["next_offset"] is None
    assert stories[-1] == {
        "id": "resp_0",
        "text": "a cat",
        "created_at": "1970-01-01T00:00:00Z",
        "status": "in_progress",
        "cover": None,
        "pictures": 0,
    }


def test_a_story_has_its_response_and_its_pictures(client, told):
    story = client.get(f"/studio/stories/{told['id']}").json()
    assert story["response"]["interleave"] == told["interleave"] and story["given"] == []
    sha256 = told["interleave"]["steps"][0]["picture"]
    picture = client.get(f"/studio/pictures/{sha256}")
    assert EncodedImage(picture.content).sha256 == sha256
    assert picture.headers["content-type"] == "image/png"
    assert "private" in picture.headers["cache-control"]


def test_downloads_are_the_story(client, told):
    page = client.get(f"/studio/stories/{told['id']}.html")
    expected = f'attachment; filename="story-{told["id"]}.html"'
    assert page.headers["content-disposition"] == expected
    assert page.headers["content-security-policy"] == "sandbox"
    assert SNOWMAN in page.text and page.text.count("data:image/png") >= 4
    markdown = client.get(f"/studio/stories/{told['id']}.md")
    assert markdown.text.startswith(f"# {SNOWMAN}")
    packed = client.get(f"/studio/stories/{told['id']}.zip")
    names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    assert {"story.html", "story.md"} < set(names) and len(names) >= 6


@pytest.mark.parametrize(
    "path", ["stories", "stories/resp_x", "stories/resp_x.html", "pictures/" + "0" * 64]
)
def test_data_needs_a_key(stranger, path):
    error_of(stranger.get(f"/studio/{path}"), 401)


def test_what_others_asked_for_is_not_there(service, told):
    with visitor(service, "yours") as client:
        assert client.get("/studio/stories").json()["stories"] == []
        for name in (told["id"], f"{told['id']}.zip", "resp_none"):
            error_of(client.get(f"/studio/stories/{name}"), 404)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("stories/a b", 400),
        ("stories/a.html.html", 400),
        ("stories/x.pdf", 400),
        ("stories?offset=-1", 400),
        ("pictures/0", 400),
        ("pictures/..%2f..%2fx", 404),
    ],
)
def test_what_is_no_id_reaches_nothing(client, path, status):
    error_of(client.get(f"/studio/{path}"), status)


def test_a_missing_picture_is_explained(client, service, told):
    lost = told | {"interleave": told["interleave"] | {"given": ["0" * 64]}}
    keep(service, "resp_lost", "lost", lost)
    answer = client.get("/studio/stories/resp_lost.html")
    error_of(answer, 410)
    assert str(service.service.home.local) not in answer.text
    error_of(client.get("/studio/pictures/" + "0" * 64), 404)


def test_a_story_that_has_not_begun_can_be_opened(client, service):
    keep(service, "resp_waiting", "waiting")
    story = client.get("/studio/stories/resp_waiting").json()
    assert (story["status"], story["given"]) == ("in_progress", [])


def test_the_document_of_the_api_has_the_studios_data(stranger):
    paths = stranger.get("/openapi.json").json()["paths"]
    assert {path for path in paths if path.startswith("/studio")} == {
        "/studio/stories",
        "/studio/stories/{story_id}",
        "/studio/stories/{story_id}.{ending}",
        "/studio/pictures/{sha256}",
    }
    for path, operations in paths.items():
        if path.startswith("/studio"):
            assert set(operations["get"]["responses"]) == {"200", "default"}
