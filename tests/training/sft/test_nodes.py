"""A training over two nodes, here two process groups of one machine without GPUs."""

import os
import subprocess
import sys

import pytest

from tests.helpers.tiny_model import build_untrained
from tests.training.sft.sft_runs import Training, settings, write_export

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_second_node_joins_and_ends_with_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    build_untrained(tmp_path / "parent")
    data = write_export(tmp_path / "export")
    how = settings(nodes=2, batch_per_device=2, max_steps=2)
    training = Training(tmp_path / "job", tmp_path / "parent", data, how)
    training.job.write()
    command = [sys.executable, "-m", "training.sft.nodes", str(training.folder), "1"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        messages, output = training.run()
        said, _ = node.communicate(timeout=300)
    finally:
        node.kill()
    assert messages[-1]["kind"] == "finished", output
    assert messages[-1]["finished"]["metrics"]["steps"] == 2
    assert said == "node 1: LLaMA-Factory ended with 0\n" and node.returncode == 0
    assert training.weights()
