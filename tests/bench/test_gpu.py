"""Every stage of the half hour on a GPU is rehearsed with tiny shapes on the CPU."""

import json

import pytest

from bench import gpu
from inference.backends.model_files import device_and_dtype
from training.grpo.driver import GrpoJob

pytestmark = pytest.mark.slow


@pytest.fixture
def rehearse(tmp_path, monkeypatch):
    """Runs a stage; returns its numbers, as they are in the file."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "numbers.json"

    def run(stage):
        assert gpu.main([stage, "--tiny", "--out", str(path)]) == 0
        content = json.loads(path.read_text())
        assert content["device"].endswith("CPU cores, tiny shapes")
        assert "gpu_bytes" not in path.read_text(), "what is not measured is missing"
        return content["stages"][stage]

    return run


@pytest.mark.long
def test_klein_draws_from_texts_and_from_images(rehearse):
    numbers = rehearse("klein")
    cases = ("text, batch 1", "text, batch 4", "edit, 1 reference", "edit, 4 references")
    assert all(numbers[case]["images_a_second"] > 0 for case in cases)
    assert not any("error" in numbers[case] for case in cases)


@pytest.mark.long
def test_a_critic_takes_steps_with_adapters_and_decodes(rehearse):
    numbers = rehearse("lora")
    assert numbers["step, batch 2, 32 tokens"]["seconds"] > 0
    assert numbers["decoding, batch 2"]["tokens_a_second"] > 0


@pytest.mark.long
def test_log_probabilities_are_verls(rehearse):
    numbers = rehearse("logprobs")
    for way in ("plain", "entropy", "chunked entropy", "fused"):
        assert numbers[f"{way}, 60 tokens"]["seconds"] > 0


def test_grpo_is_killed_after_two_steps_and_resumed(rehearse, monkeypatch, tmp_path):
    """With a stand-in for the driver; the rows are trained on for real in `training/grpo`."""
    job = gpu._grpo_job(is_tiny=True, folder=tmp_path)
    GrpoJob.model_validate(job.payload)
    started = tmp_path / "started"
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").touch()
    finished = {"finished": {"model": str(model), "metrics": {"steps": 4}}}
    (tmp_path / "stand_in.py").write_text(
        "import json, pathlib, time\n"
        f"started = pathlib.Path({str(started)!r})\n"
        "if started.exists():\n"
        f"    print({json.dumps(finished)!r})\n"
        "else:\n"
        "    started.touch()\n"
        '    print(\'{"step": 1}\\n{"step": 2}\', flush=True)\n'
        "    time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    stand_in = job.model_copy(update={"module": "stand_in"})
    monkeypatch.setattr(gpu, "_grpo_job", lambda _is_tiny, _folder: stand_in)
    numbers = rehearse("grpo")
    assert numbers["steps"] == 4 and numbers["merged"]
    assert numbers["seconds of the second step"] < 60


@pytest.mark.long
def test_vllm_starts_with_made_up_weights(rehearse):
    numbers = rehearse("vllm")
    assert numbers["with max_model_len"]["tokens_a_second"] > 0
    assert "fixed size" in numbers["without max_model_len"]["skipped"]


def test_the_shapes_of_klein_are_those_of_its_weights():
    device_and_dtype("cpu")  # torchvision
    pipeline = gpu._klein_pipeline("meta")
    parts = (pipeline.transformer, pipeline.text_encoder, pipeline.vae)
    sizes = [sum(weights.numel() for weights in part.parameters()) for part in parts]
    assert [round(size / 1e9, 2) for size in sizes] == [9.08, 8.19, 0.08]
    latents, patch = pipeline.vae.config.latent_channels, 2 * 2
    assert pipeline.transformer.config.in_channels == latents * patch


def test_a_stage_that_cannot_run_says_why_and_has_no_numbers(tmp_path, monkeypatch):
    """Nothing can be installed here; the numbers of other stages stay."""
    path = tmp_path / "numbers.json"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTERLEAVE_ENVIRONMENTS", str(tmp_path / "file" / "environments"))
    assert gpu.main(["logprobs", "--tiny", "--out", str(path)]) == 0
    content = json.loads(path.read_text())
    found = content["stages"]["logprobs"]
    assert found.keys() == {"skipped", "seconds of the stage"}
    assert "cannot write to" in found["skipped"]
    content["stages"]["lora"] = {"parameters": 1}
    path.write_text(json.dumps(content))
    gpu.main(["logprobs", "--tiny", "--out", str(path)])
    assert json.loads(path.read_text())["stages"]["lora"] == {"parameters": 1}
