"""Push and pull with the official client, against a server that speaks the Hub's API."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from assets.checkpoints.training import TrainingRecord, checkpoint_row
from assets.curation.exports.publisher import export
from assets.curation.settings import CurationSettings
from assets.hub.contents import register_checkpoint, training_sets
from inference.backends.checkpoint.manifest import (
    MANIFEST_FILE,
    RECORD,
    CheckpointError,
    Manifest,
    read_manifest,
    resolve,
)
from schemas.curation import CRITIC_RL, CRITIC_SFT, IMPORTS, PLANNER_SFT, SEQUENCES
from schemas.prompts import PROMPTS
from tests.assets.curation.test_exports import curate
from tests.assets.hub.hub_server import TOKEN, Hub, Repo, hub_server
from tests.assets.imports import files
from tests.helpers.automation import wait_until
from tests.helpers.command import INTERLEAVE, interleave
from training.base_model import PACKAGED_MODEL
from training.registry import CheckpointRegistry
from warehouse import Home

pytestmark = pytest.mark.slow
DATA, MODEL = "datasets/me/stories", "me/critic"
SETS = (CRITIC_SFT, CRITIC_RL, PLANNER_SFT, SEQUENCES)


@pytest.fixture
def hub(monkeypatch):
    """Of which the client, which reads its environment once, is told in its constants."""
    with hub_server() as server:
        of_client = "huggingface_hub.constants"
        monkeypatch.setattr(f"{of_client}.ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(f"{of_client}.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(f"{of_client}.HF_HUB_DISABLE_XET", True)
        yield server


@pytest.fixture(scope="module")
def curated(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("curated") / "home")
    return curate(home)


@pytest.fixture
def pushed(hub, curated) -> Repo:
    """The repository of the sets, as a push leaves it."""
    repo = hub.repos[DATA] = Repo(private=True)
    files = training_sets(curated, CurationSettings())
    repo.commit({name: path.read_bytes() for name, path in files.items()})
    return repo


class Command:
    """The command, in this process or in one of its own, which can be killed."""

    def __init__(self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.environment = {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(folder / "hf"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": "30",
        }

    def __call__(self, home: Home, *args: str, **environment: str) -> str:
        """Its output; the single line of an error where it fails."""
        own = {**self.environment, "INTERLEAVE_HOME": home.root, **environment}
        done = interleave(self.capsys, *args, **own)
        if done.returncode == 0:
            return done.stdout
        (line,) = done.stderr.strip().splitlines()
        assert done.returncode == 1
        return line

    def kill_while_held(
        self, hub: Hub, home: Home, *args: str, done: Callable[[], object] = lambda: True
    ) -> None:
        """Kill it once a request is held, and something else is `done`."""
        process = subprocess.Popen(
            [*INTERLEAVE, *args],
            env={**os.environ, **self.environment, "INTERLEAVE_HOME": home.root},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert hub.waiting.wait(200), process.communicate(timeout=5)
        wait_until(done)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        hub.held = ""


@pytest.fixture
def command(hub, tmp_path, capsys) -> Command:
    return Command(hub, tmp_path, capsys)


def stored_files(hub: Hub, home: Home, repository: str) -> set[str]:
    """Downloaded files that the client counts as complete: it notes each after moving it there."""
    notes = home.hub / repository.replace("/", "--") / ".cache/huggingface/download"
    return {
        path
        for path in hub.downloads
        if (note := notes / f"{path}.metadata").is_file() and note.stat().st_size
    }


def header_of(readme: bytes) -> dict:
    return yaml.safe_load(readme.decode().split("---\n")[1])


def test_pushed_sets_come_back_as_the_same_rows(hub, command, curated, tmp_path):
    listed = command(curated, "push", "data", "me/stories", "--dry-run")
    assert "datasets/me/stories (private, new)" in listed and "upload" in listed
    assert hub.repos == {} and hub.uploads == []
    push = ("push", "data", DATA, "--yes", "--license", "cc-by-4.0")
    assert "pushed to datasets/me/stories" in command(curated, *push)
    repo = hub.repos[DATA]
    assert repo.private and len(repo.commits) == 2
    header = header_of(repo.commits[repo.head]["README.md"])
    assert header["license"] == "cc-by-4.0"
    assert {"critic_sft", "critic_rl"} <= {each["config_name"] for each in header["configs"]}
    assert "up to date" in command(curated, *push)

    pulled = Home(tmp_path / "pulled")
    assert "critic_sft: 8 rows" in command(pulled, "pull", DATA)
    for table in SETS:
        assert pulled.lake.content_hash(table) == curated.lake.content_hash(table)
        assert pulled.lake.read(table) == curated.lake.read(table)
    assert pulled.lake.read(PROMPTS) == curated.lake.read(PROMPTS)
    for sha256 in pulled.lake.read(CRITIC_RL)["edited_image"].to_pylist():
        assert pulled.images.get(sha256).data == curated.images.get(sha256).data
    card = export(pulled, CurationSettings(), "llamafactory")
    assert card.sources["generators"] == ["pen"]  # though no attempt was pulled


def test_a_killed_push_uploads_only_what_is_missing(hub, command, curated):
    hub.held = "upload"
    command.kill_while_held(hub, curated, "push", "data", DATA, "--yes")
    assert len(hub.repos[DATA].commits) == 1  # nobody sees a part of it
    before = list(hub.uploads)
    assert len(before) == 1
    command(curated, "push", "data", DATA, "--yes")
    assert len(hub.uploads) == len(set(hub.uploads)) > 1
    assert hub.uploads[:1] == before


@pytest.mark.long
def test_a_changed_set_replaces_the_old_files(pushed, command, curated):
    files = pushed.commits[pushed.head]
    pushed.commit({**files, "data/old/train-00000.parquet": b"", "LICENSE": b"me"})
    assert "delete" in command(curated, "push", "data", DATA, "--yes")
    files = pushed.commits[pushed.head]
    assert "data/old/train-00000.parquet" not in files and "LICENSE" in files


def test_a_killed_pull_continues(hub, pushed, command, curated, tmp_path):
    pulled = Home(tmp_path / "pulled")
    hub.held = "sequences"
    stored = partial(stored_files, hub, pulled, DATA)
    command.kill_while_held(hub, pulled, "pull", DATA, done=stored)
    before = stored()
    assert before and not pulled.lake.rows(CRITIC_SFT)
    hub.downloads.clear()
    assert "critic_sft: 8 rows" in command(pulled, "pull", DATA)
    assert not before & set(hub.downloads)
    assert "data/sequences/train-00000.parquet" in hub.downloads
    assert pulled.lake.read(SEQUENCES) == curated.lake.read(SEQUENCES)


@pytest.mark.long
def test_other_rows_stay_unless_replace_is_given(pushed, command, curated, tmp_path):
    other = Home(tmp_path / "other")
    other.lake.write(CRITIC_SFT, curated.lake.read(CRITIC_SFT).slice(0, 2))
    assert "has other rows in critic_sft" in command(other, "pull", DATA)
    assert other.lake.rows(CRITIC_SFT) == 2 and other.lake.rows(CRITIC_RL) == 0
    (folder,) = other.local.glob("hub/*/data/critic_sft")
    (file,) = folder.iterdir()
    shutil.copy(file, folder / "train-00001.parquet")  # as an earlier, larger set leaves it
    command(other, "pull", DATA, "--replace")
    assert other.lake.rows(CRITIC_SFT) == 8


@pytest.mark.long
def test_files_that_are_not_those_of_the_card_are_refused(pushed, command, home):
    path, files = "data/critic_sft/train-00000.parquet", pushed.commits[pushed.head]
    pushed.commit({**files, path: files["data/critic_rl/train-00000.parquet"]})
    assert f"{path} is not the file that card.json names" in command(home, "pull", DATA)
    assert home.lake.rows(CRITIC_RL) == 0


class TestCheckpoints:
    @pytest.fixture
    def trained(self, home) -> Home:
        folder = CheckpointRegistry(home).folder("critic_sft_checkpoint", "v1")
        folder.mkdir(parents=True)
        for path in PACKAGED_MODEL.iterdir():
            (folder / path.name).symlink_to(path)
        manifest = Manifest(
            name="critic_sft_checkpoint",
            version="v1",
            role="critic",
            agent_prompts={"critic": "critic@1"},
            image_max_pixels=4096,
            max_new_tokens={"critic": 99},
        )
        (folder / MANIFEST_FILE).write_text(manifest.model_dump_json())
        record = TrainingRecord(
            parent="base_model/v0",
            dataset_version="rows",
            dataset_rows=8,
            config_hash="config",
            metrics={"loss": 0.5},
            curves=[],
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            files=sorted(path.name for path in folder.iterdir()),
        )
        (folder / RECORD).write_text(record.model_dump_json())
        row = checkpoint_row("critic_sft_checkpoint", "v1", folder, record)
        CheckpointRegistry(home).register(row)
        return home

    def test_a_pulled_checkpoint_is_registered(self, hub, command, trained, tmp_path):
        command(trained, "push", "critic_sft_checkpoint", MODEL, "--yes")
        repo = hub.repos[f"models/{MODEL}"]
        header = header_of(repo.commits[repo.head]["README.md"])
        assert header["library_name"] == "transformers"
        pulled = Home(tmp_path / "pulled")
        assert "critic_sft_checkpoint@v1 from me/critic@" in command(pulled, "pull", MODEL)
        (row,) = CheckpointRegistry(pulled).rows()
        (pushed,) = CheckpointRegistry(trained).rows()
        assert row.source == f"{MODEL}@{repo.head}" and pushed.source is None
        local = {"source", "uri"}
        assert row.model_dump(exclude=local) == pushed.model_dump(exclude=local)
        folder = resolve("critic_sft_checkpoint@v1", "critic", pulled)
        assert (folder / "model.safetensors").read_bytes() == (
            PACKAGED_MODEL / "model.safetensors"
        ).read_bytes()
        read_manifest(folder).check_role("critic")
        command(pulled, "push", "critic_sft_checkpoint@v1", "me/again", "--yes")
        assert len(hub.uploads) == 1  # the weights are on the Hub

    def test_names_that_lead_outside_are_refused(self, trained):
        folder = CheckpointRegistry(trained).folder("critic_sft_checkpoint", "v1")
        record = json.loads((folder / RECORD).read_text())
        (folder / RECORD).write_text(json.dumps({**record, "files": ["../../lake"]}))
        with pytest.raises(CheckpointError, match=r"'\.\./\.\./lake', which is not a file"):
            register_checkpoint(trained, folder, "me/critic@1")


@pytest.mark.long
class TestMistakes:
    def test_nothing_is_pushed_without_an_answer_or_a_token(self, hub, command, curated):
        line = command(curated, "push", "data", DATA)
        assert line == "error: nothing was pushed: answer y, or add --yes"
        wrong = command(curated, "push", "data", DATA, "--yes", HF_TOKEN="hf_wrong")
        none = command(curated, "push", "data", DATA, "--yes", HF_TOKEN="")
        assert "set HF_TOKEN to a valid one" in wrong and "set HF_TOKEN" in none
        assert "hf_wrong" not in wrong
        foreign = command(curated, "push", "data", "others/stories", "--yes")
        assert "use a token that may write" in foreign
        assert hub.repos == {}

    def test_missing_repositories_and_revisions(self, hub, command, home):
        line = command(home, "pull", "me/nothing")
        assert "me/nothing does not exist" in line and "datasets/me/nothing" in line
        assert "write owner/name" in command(home, "pull", "nothing")
        hub.repos["models/me/critic"] = Repo(private=False)
        assert "this revision of it" in command(home, "pull", MODEL, "--revision", "v9")
        assert "is not a checkpoint" in command(home, "pull", MODEL)

    def test_a_public_repository_needs_the_option(self, hub, command, curated):
        hub.repos[DATA] = Repo(private=False)
        assert "is public: add --public" in command(curated, "push", "data", DATA, "--yes")
        assert "pushed" in command(curated, "push", "data", DATA, "--yes", "--public")

    @pytest.mark.parametrize(("status", "said"), [(503, "has a problem (503)"), (429, "(429)")])
    def test_a_hub_in_trouble(self, hub, command, home, status, said):
        hub.failures.append(("/api/", status))
        assert said in command(home, "pull", MODEL)

    def test_no_hub_at_all(self, command, home, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
        line = command(home, "pull", MODEL)
        assert line.startswith("error: me/critic: ") and "try again" in line

    def test_an_empty_home(self, command, home):
        assert "has no training sets yet" in command(home, "push", "data", DATA, "--yes")
        assert "no checkpoint" in command(home, "push", "critic_rl_checkpoint", MODEL, "--yes")


def test_a_file_of_a_data_set_is_imported(hub, command, tmp_path):
    """With the commit in its provenance, and pictures of the repository."""
    released = tmp_path / "released"
    released.mkdir()
    files.planner_sft(released)
    paths = [path for path in released.rglob("*") if path.is_file()]
    repo = hub.repos["datasets/them/Train-Data"] = Repo(private=False)
    contents = {path.relative_to(released).as_posix(): path.read_bytes() for path in paths}
    commit = repo.commit(contents)
    home = Home(tmp_path / "importing")
    reference = "datasets/them/Train-Data/planner_sft.json"
    done = command(home, "import", "planner-sft", reference, "--license", "cc-by-4.0")
    assert "2 rows of planner_sft as planner_sft" in done and "4 rejected" in done
    rows = home.lake.read(IMPORTS).to_pylist()
    assert {row["source"] for row in rows} == {
        f"datasets/them/Train-Data@{commit[:12]}/planner_sft.json"
    }
    assert sum(len(row["images"]) for row in rows) == 1
    wrong = command(home, "import", "planner-sft", "datasets/them/Train-Data/no.json")
    assert "has no file no.json" in wrong
