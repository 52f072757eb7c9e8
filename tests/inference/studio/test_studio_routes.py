"""The studio's routes: the page for everybody, earlier stories for those who asked for them."""

import asyncio
import io
import re
import zipfile

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request

from interleave_foundry.assets.profile import load_profile
from interleave_foundry.inference.service.library import Kept, Library
from interleave_foundry.inference.settings import Limits
from interleave_foundry.inference.studio.files import FOLDER
from interleave_foundry.inference.studio.pages import studio_router
from interleave_foundry.inference.telling.casting import Cast
from interleave_foundry.inference.telling.kept import story_record
from interleave_foundry.inference.telling.requests import StoryRequest
from interleave_foundry.inference.telling.story import StorySoFar
from interleave_foundry.inference.telling.teller import Teller
from interleave_foundry.warehouse import Home, Picture

SNOWMAN = "Show in 4 pictures how to build a snowman"
KEYS = {"Bearer mine": "me", "Bearer yours": "you"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A home, and the Response of a story that was told in it."""

    async def tell():
        home = Home(tmp_path_factory.mktemp("studio"))
        request, story = StoryRequest(SNOWMAN), StorySoFar(SNOWMAN)
        cast = Cast(load_profile("sketch").build(home))
        async with Teller(home, Limits()) as teller:
            async for event in teller.tell(request, cast):
                story.note(event)
        record = {
            "generation_id": request.generation_id,
            "status": story.ending.status,
            "versions": cast.names,
            "rules": request.rules.model_dump(),
            **story_record(story),
        }
        return home, {"id": "resp_snowman", "status": "completed", "interleave": record}

    return asyncio.run(tell())


@pytest.fixture
def library(told, tmp_path):
    library = Library(Home(tmp_path))
    yield library
    library.close()


@pytest.fixture
async def client(told, library):
    home, response = told
    library.begin(Kept("resp_snowman", "me", SNOWMAN, "completed", response, 86_400.0))

    def owner_of(request: Request) -> str:
        if (owner := KEYS.get(request.headers.get("authorization", ""))) is None:
            raise HTTPException(401, "no such key")
        return owner

    app = FastAPI()
    app.include_router(studio_router(home, library, owner_of))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://studio") as client:
        client.headers["Authorization"] = "Bearer mine"
        yield client


async def test_the_page_and_all_that_it_names_need_no_key(client):
    del client.headers["Authorization"]
    page = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="(studio/[^"]+)"', page.text)
    assert len(named) >= 3
    for name in named:
        assert (await client.get(name)).status_code == 200, name


async def test_modules_name_only_modules_that_are_there(client):
    seen, ahead = set(), ["app.js"]
    while ahead:
        name = ahead.pop()
        seen.add(name)
        answer = await client.get(f"/studio/static/{name}")
        assert answer.status_code == 200, name
        assert "javascript" in answer.headers["content-type"]
        ahead += set(re.findall(r'from "\./([\w.]+)"', answer.text)) - seen
    assert seen == {path.name for path in FOLDER.glob("*.js")}, "a module that nobody uses"


@pytest.mark.parametrize("path", ["/", "/studio/static/app.js"])
async def test_the_page_may_load_nothing_from_elsewhere(client, path):
    policy = (await client.get(path)).headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    for file in FOLDER.rglob("*.*"):
        if file.suffix != ".png":
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "http" not in text and "innerHTML" not in text, file


@pytest.mark.parametrize(
    "name",
    ["../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "/etc/passwd", "examples", "", "a%00b"],
)
async def test_no_other_file_is_served(client, name):
    assert (await client.get(f"/studio/static/{name}")).status_code == 404


async def test_stories_are_listed_and_found_by_their_words(client, library, told):
    found = (await client.get("/studio/stories", params={"words": "SNOWMAN build"})).json()
    record = told[1]["interleave"]
    assert found == {
        "stories": [
            {
                "id": "resp_snowman",
                "text": SNOWMAN,
                "created_at": "1970-01-02T00:00:00Z",
                "status": "complete",
                "cover": record["steps"][-1]["picture"],
                "pictures": 4,
            }
        ],
        "next_offset": None,
    }
    assert (await client.get("/studio/stories", params={"words": "tulip"})).json()["stories"] == []


async def test_the_list_goes_on_where_it_ended(client, library):
    for number in range(30):
        kept = Kept(f"resp_{number}", "me", "a cat", "in_progress", {}, float(number))
        library.begin(kept)
    first = (await client.get("/studio/stories", params={"words": "cat"})).json()
    second = (
        await client.get("/studio/stories", params={"words": "cat", "offset": first["next_offset"]})
    ).json()
    ids = [each["id"] for page in (first, second) for each in page["stories"]]
    assert ids == [f"resp_{number}" for number in reversed(range(30))]
    assert second["next_offset"] is None and first["stories"][0]["status"] == "in_progress"


async def test_a_story_has_its_response_and_its_pictures(client, told):
    response = told[1]
    story = (await client.get("/studio/stories/resp_snowman")).json()
    assert story["response"] == response and story["given"] == []
    sha256 = response["interleave"]["steps"][0]["picture"]
    picture = await client.get(f"/studio/pictures/{sha256}")
    assert Picture(picture.content).sha256 == sha256
    assert picture.headers["content-type"] == "image/png"
    assert "private" in picture.headers["cache-control"]


async def test_downloads_are_the_story(client):
    page = await client.get("/studio/stories/resp_snowman.html")
    assert page.headers["content-disposition"] == 'attachment; filename="story-resp_snowman.html"'
    assert page.headers["content-security-policy"] == "sandbox"
    assert SNOWMAN in page.text and page.text.count("data:image/png") >= 4
    markdown = await client.get("/studio/stories/resp_snowman.md")
    assert markdown.text.startswith(f"# {SNOWMAN}")
    packed = await client.get("/studio/stories/resp_snowman.zip")
    names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    assert {"story.html", "story.md"} < set(names) and len(names) >= 6


@pytest.mark.parametrize(
    "path",
    [
        "/studio/stories",
        "/studio/stories/resp_snowman",
        "/studio/stories/resp_snowman.html",
        "/studio/pictures/" + "0" * 64,
    ],
)
async def test_data_needs_a_key(client, path):
    client.headers["Authorization"] = "Bearer guessed"
    assert (await client.get(path)).status_code == 401


async def test_what_others_asked_for_is_not_there(client):
    client.headers["Authorization"] = "Bearer yours"
    assert (await client.get("/studio/stories")).json()["stories"] == []
    for path in ("resp_snowman", "resp_snowman.zip", "resp_none"):
        assert (await client.get(f"/studio/stories/{path}")).status_code == 404


@pytest.mark.parametrize(
    "path", ["stories/a b", "stories/a.html.html", "stories/x.pdf", "pictures/0", "pictures/.."]
)
async def test_what_is_no_id_reaches_nothing(client, path):
    assert (await client.get(f"/studio/{path}")).status_code in (404, 422)


async def test_a_missing_picture_is_explained(client, told, library):
    home, response = told
    lost = {**response, "interleave": {**response["interleave"], "given": ["0" * 64]}}
    library.begin(Kept("resp_lost", "me", "lost", "completed", lost))
    answer = await client.get("/studio/stories/resp_lost.html")
    assert answer.status_code == 410 and str(home.local) not in answer.text
    assert (await client.get("/studio/pictures/" + "0" * 64)).status_code == 404
