"""`service.retention`: old and surplus responses are deleted, by the service and by the command."""

import textwrap

import pytest

from inference.service.response_store import ResponseStore
from inference.service.settings import RetentionSettings
from interleave_foundry import query
from tests.helpers.command import interleave
from tests.inference.service.running_service import running_service, wait_until
from warehouse import Home

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
    text = f"""
        base: sketch
        name: retaining
        description: Responses are not stored for ever
        service: {{retention: {retention}}}
    """
    path.write_text(textwrap.dedent(text))
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
