"""The store of responses: threads, owners, search, damaged files, and retention."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from inference.generation.requests import GenerationRequest
from inference.service.response_store import ResponseStore
from inference.service.run import GenerationRun
from inference.service.settings import RetentionSettings
from interleave_foundry import query
from schemas import StorageError
from tests.helpers.command import interleave
from tests.inference.service.running_service import running_service, wait_until
from warehouse import Home


@pytest.fixture
def store(home):
    store = ResponseStore(home)
    yield store
    store.close()


def stored(name, text="a cat", owner="", created_at=0, key=None):
    """The row of a request whose response has the id `resp_{name}`."""
    request = GenerationRequest(text, generation_id=name, key=key)
    return GenerationRun(owner, request, {"created_at": created_at})


def test_owners_see_only_their_own(store):
    store.begin(stored("mine", owner="me", key="k"))
    store.begin(stored("yours", owner="you", key="k"))
    assert store.get("resp_mine", "you") is None and store.get("resp_mine", "me").owner == "me"
    assert store.by_key("you", "k").id == "resp_yours"
    assert [each.id for each in store.search("me")] == ["resp_mine"]
    assert not store.delete("resp_mine", "you") and store.delete("resp_mine", "me")
    assert store.get("resp_mine", "me") is None


def test_search_ignores_case_and_wildcards(store):
    for number, text in enumerate(["Grow a FLOWER", "a flower in a Straße", "100% of a_b"]):
        store.begin(stored(str(number), text, created_at=number))
    found = {words: [each.request.generation_id for each in store.search("", words)] for words in
             ("flower", "STRASSE flower", "%", "a_b", "a%b", "tree")}  # fmt: skip
    assert found == {"flower": ["1", "0"], "STRASSE flower": ["1"], "%": ["2"], "a_b": ["2"],
                     "a%b": [], "tree": []}  # fmt: skip
    assert [each.id for each in store.search("", limit=1, offset=1)] == ["resp_1"]


def test_threads_share_a_store(store):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.begin(stored(str(n))), range(200)))
        list(pool.map(lambda n: store.settle(f"resp_{n}", "complete", b""), range(200)))
    assert len(store.search("", limit=500)) == 200
    assert store.settle_unfinished("interrupted", b"") == 0


def test_damaged_and_old_files_are_one_line_of_error(home):
    path = home.local / "service" / "library.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"library\.sqlite is damaged"):
        ResponseStore(home)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE responses (id TEXT PRIMARY KEY, response BLOB)")
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(StorageError, match="by another version"):
        ResponseStore(home)


TEXTS = ("Draw a yellow sun, first", "Draw a yellow sun, second", "Draw a yellow sun, third")


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """A home whose service has answered three requests."""
    home = Home(tmp_path_factory.mktemp("answered"))
    with running_service(home) as service:
        for text in TEXTS:
            service.client().responses.create(input=text)
    return home


def remaining(home: Home) -> list[str]:
    store = ResponseStore(home)
    texts = [stored.request.text for stored in store.search("")]
    store.close()
    return texts[::-1]


def profile(folder, retention: str) -> str:
    path = folder / "retaining.yaml"
    about = "name: retaining\ndescription: Responses are not stored for ever"
    path.write_text(f"base: sketch\n{about}\nservice: {{retention: {retention}}}\n")
    return str(path)


def test_age_and_number_decide(answered):
    store = ResponseStore(answered)

    def expired(**retention: float | None) -> list[str]:
        found = store.expired(RetentionSettings(**retention))
        return [stored.request.text for stored in found]

    assert expired() == expired(days=1) == expired(responses=3) == []
    assert expired(responses=1) == list(TEXTS[:2])
    assert expired(days=1e-9) == expired(responses=0, days=1) == list(TEXTS)
    store.close()


def test_the_command_and_the_service_delete_what_has_expired(answered, tmp_path, capsys):
    two = profile(tmp_path, "{responses: 2}")
    call = ("gc", "--home", answered.root, "--profile", two)
    planned = interleave(capsys, *call, "--dry-run")
    assert "1 responses would be deleted" in planned.stdout and remaining(answered) == list(TEXTS)
    done = interleave(capsys, *call)
    assert "1 responses deleted" in done.stdout and done.returncode == 0
    assert remaining(answered) == list(TEXTS[1:])
    assert query("select text from generations order by all", answered).text.tolist() == sorted(
        TEXTS[1:]
    )
    with running_service(answered, retention={"responses": 1}):
        assert "A service runs" in interleave(capsys, *call).stdout
        wait_until(lambda: remaining(answered) == [TEXTS[2]])
    assert query("select text from generations", answered).text.tolist() == [TEXTS[2]]
