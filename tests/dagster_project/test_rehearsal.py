"""Rehearsals: what stands in for real models, the rewritten profiles, and whole lineages."""

import json
import random
import re

import psutil
import pytest
import yaml

from assets.core.profile import FOLDER, load_profile
from assets.evaluation.items import part_of
from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from dagster_project.rehearsal import profile as rewriting
from dagster_project.rehearsal.models import TinyModel, tiny_agent
from dagster_project.rehearsal.profile import Rehearsal
from dagster_project.rehearsal.provider import answer, json_answers, tagged_answers
from dagster_project.rehearsal.report import FILE
from inference import questions
from inference.agent_prompts.formatting import parse_plan, parse_verdict
from inference.backends.providers import structured
from inference.backends.providers.structured import CompletionResult, parse_answer
from inference.servers.instance import home_servers
from schemas.training import ROLLOUTS
from schemas.trajectories import ATTEMPTS
from tests.helpers.command import interleave
from warehouse import Home

GENERATORS = FOLDER.parent / "docs" / "generators.md"
GENERATOR_EXAMPLES = re.findall(r"```yaml\n(.*?)```", GENERATORS.read_text(), re.DOTALL)
ANSWERS = [
    structured.PlanAnswer,
    structured.VerdictAnswer,
    structured.ScoreAnswer,
    structured.SemanticsAnswer,
    structured.QualityAnswer,
    questions.RubricAnswer,
    questions.JudgementAnswer,
    questions.ExpansionAnswer,
]


def test_answers_are_valid_and_known_to_a_tiny_model():
    for form in ANSWERS:
        fields = frozenset(form.model_json_schema()["properties"])
        content = answer(fields, random.Random(1), criteria=3)
        assert parse_answer(CompletionResult(json.dumps(content)), form).value(), form
        fitting = [text for text in json_answers() if set(json.loads(text)) == fields]
        assert fitting and all(form.model_validate_json(text) for text in fitting), form


def test_free_answers_are_plans_and_verdicts():
    accepting, rejecting = map(parse_verdict, tagged_answers())
    assert accepting.accepted and not rejecting.accepted and rejecting.refined_prompt
    assert all(len(parse_plan(text).steps) == 2 for text in tagged_answers())


@pytest.fixture
def quick_models(monkeypatch):
    """Folders without weights, and no bank: the rewriting is tested."""

    def made(folder, *_):
        folder.mkdir(parents=True)
        return TinyModel(folder, "Tiny")

    monkeypatch.setattr(rewriting, "tiny_agent", made)
    monkeypatch.setattr(rewriting, "tiny_generator", made)
    monkeypatch.setattr(Rehearsal, "_heldout_share", lambda _: 0.85)


def rewritten(original, folder):
    """The profile of a rehearsal, as it is read again, and its text."""
    folder.mkdir()
    rehearsal = Rehearsal(original, folder, "http://127.0.0.1:1", prompts=16)
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(rehearsal.rewrite()))
    (folder / rewriting.REGISTRY).write_text(yaml.safe_dump(rehearsal.registry))
    return load_profile(str(path)), path.read_text()


def test_every_profile_can_be_rewritten(tmp_path, quick_models):
    for name in sorted(path.stem for path in FOLDER.glob("*.yaml")):
        original = load_profile(name)
        found, text = rewritten(original, tmp_path / name)
        for role in ("planner", "critic"):
            if model := getattr(found.openai, role):
                assert model.identity, "its prompts are here"
        assert found.roles == original.roles and found.pack == original.pack, name
        assert not any(server.gpus for server in found.servers.values()), name
        assert "_API_KEY" not in text, name
        if original.training:
            assert original.training.critic_rl.recipe == found.training.critic_rl.recipe, name


def test_profiles_of_the_docs_of_generators_load_and_are_rewritten(tmp_path, quick_models):
    for number, example in enumerate(GENERATOR_EXAMPLES):
        path = tmp_path / f"example-{number}.yaml"
        path.write_text(example)
        original = load_profile(str(path))
        found, _ = rewritten(original, tmp_path / str(number))
        models = [each.images.generators() for each in (original, found)]
        assert len({tuple(name for name, _ in each) for each in models}) == 1, example
        for _, model in found.images.generators():
            (endpoint,) = found.images.endpoints_of(model)
            assert "127.0.0.1:1/" in str(endpoint.url) and endpoint.key is None, example
        assert (found.diffusers.edit is None) == (original.diffusers.edit is None), example


def test_evaluations_while_training_have_prompts(tmp_path, quick_models):
    profile = yaml.safe_load((FOLDER / "sketch.yaml").read_text())
    profile["training"]["critic_rl"] |= {"dev_share": 0.02, "patience": 2}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(profile))
    rehearsal = Rehearsal(load_profile(str(tmp_path / "mine.yaml")), tmp_path, "", prompts=16)
    training = rehearsal.rewrite()["training"]
    assert (training["critic_rl"]["dev_share"], training["critic_rl"]["patience"]) == (0.5, 2)
    assert training["critic_sft"]["dev_share"] == 0


def test_a_reinforced_planner_has_prompts_that_no_trajectory_has(tmp_path, quick_models):
    planner_rl = {"recipe": "paper", "gpus": 4, "offload": True, "dev_share": 0.02}
    profile = {"base": "paper", "name": "mine", "training": {"planner_rl": planner_rl}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(profile))
    original = load_profile(str(tmp_path / "mine.yaml"))
    found, _ = rewritten(original, tmp_path / "r")
    settings = found.training.planner_rl
    assert (settings.gpus, settings.offload, settings.dev_share) == (0, False, 0.5)
    pack, size = load_pack(found.pack), found.bank.shard_size
    rows = generate_bank(pack, found.bank, found.banks[pack.name] * size)
    assert sum(row.split == "train" for row in rows[size:]) >= found.curation.planner.rl_prompts


def test_gpu_and_cluster_are_rewritten_to_what_paper_is(tmp_path, quick_models):
    """So that the long test below need not run them: `gpu` has one of the generators of `paper`."""

    def values_of(name):
        values = Rehearsal(load_profile(name), tmp_path / name, "http://127.0.0.1:1", 16).rewrite()
        for section in ("name", "description", "limits", "budget"):
            del values[section]
        del values["training"]["launcher"]
        return json.loads(json.dumps(values).replace(str(tmp_path / name), "FOLDER"))

    paper, gpu = values_of("paper"), values_of("gpu")
    assert values_of("cluster") == paper
    assert gpu["roles"].pop("generator") in paper["roles"].pop("generator")
    assert gpu == paper


def test_what_only_a_gpu_shows_is_named(tmp_path, quick_models):
    rehearsal = Rehearsal(load_profile("cluster"), tmp_path, "http://127.0.0.1:1", prompts=16)
    rehearsal.rewrite()
    paths = {each.path for each in rehearsal.substitutions if each.kind == "gpu"}
    assert {"cluster", "training.launcher", "training.planner_sft", "training.critic_rl"} <= paths


def test_few_prompts_have_some_that_promotion_decides_by(tmp_path):
    settings = load_profile("sketch")
    share = Rehearsal(settings, tmp_path, "http://127.0.0.1:1", prompts=16)._heldout_share()
    changed = settings.bank.model_copy(update={"heldout_share": share})
    rows = generate_bank(load_pack(settings.pack), changed, 16)
    parts = [part_of(row.split, row.prompt_id) for row in rows if row.split == "heldout"]
    assert parts.count("dev") >= 3 and any(row.split == "train" for row in rows)


@pytest.mark.slow
def test_a_tiny_agent_answers_in_the_form_of_trained_agents(tmp_path):
    folder = tiny_agent(tmp_path / "agent", "Qwen/Qwen3-VL-8B-Instruct").folder
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    turn = {"role": "user", "content": [{"type": "text", "text": "Plan a house."}]}
    inputs = processor.apply_chat_template(
        [turn], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    tokens = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0]
    text = processor.tokenizer.decode(tokens[inputs["input_ids"].shape[1] :])
    assert text.endswith("<|im_end|>") and parse_plan(text).steps


def rehearsed(capsys, folder, profile):
    """The report of a rehearsal, after which nothing runs any more."""
    done = interleave(capsys, "rehearse", "--profile", profile, "--folder", folder)
    end = (done.stdout + done.stderr).splitlines()[-12:]
    assert done.returncode == 0, "\n".join(end)
    home = Home(str(folder / "home"))
    assert not any(server.is_supervised for server in home_servers(home))
    # A supervisor frees its lock a moment before its process is gone.
    assert not wait_until_ended([p for p in psutil.process_iter() if str(folder) in command_of(p)])
    return json.loads((home.local / FILE).read_text())


def wait_until_ended(processes):
    """Commands of those that still run after half a minute."""
    _, alive = psutil.wait_procs(processes, timeout=30)
    return [command_of(process) for process in alive]


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.long
def test_the_papers_rehearsal_ends_in_an_answered_request(tmp_path, capsys, monkeypatch):
    for variable in ("GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    report = rehearsed(capsys, tmp_path / "r", "paper")
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert all(stage["measured"]["peak_bytes"] > 0 for stage in stages.values())
    home = Home(str(tmp_path / "r" / "home"))
    drawn_by = home.lake.read(ATTEMPTS, columns=["generator"]).column("generator").to_pylist()
    assert len(set(drawn_by)) == 2, "the mix has two generators"
    assert "planner_sft_checkpoint@" in stages["service"]["ran"], "by agents that it trained"
    assert "critic_sft_checkpoint@" in stages["service"]["ran"]
    rollouts = home.lake.read(ROLLOUTS).to_pylist()
    assert rollouts and not any(row["error"] for row in rollouts), "every reward was known"
    served = {server.spec.name for server in home_servers(home)}
    assert served >= load_profile("paper").servers.keys()
