"""The HTTP server with the client that verl loads."""

import ast
import asyncio
import importlib.util
import json
import stat
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.training.rewards.reward_world import EXACT, QUICK, answer
from training import rewards
from training.rewards.rollouts import rollout_rows
from training.rewards.service import RewardAddress, serve_rewards, serve_rewards_in_thread
from warehouse import Home

CLIENT = Path(rewards.__file__).parent / "verl_client.py"
KEYS = {
    "score",
    "masked",
    "malformed",
    "format_reward",
    "accuracy_reward",
    "step_reward",
    "reward_seconds",
}


def load_client():
    """As verl loads it: from its path, without our package."""
    spec = importlib.util.spec_from_file_location("custom_module", CLIENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verl_call(world, text, truth=False, **extra):
    """What verl's reward manager passes for a row of the export."""
    state = world.state(truth)
    row = {
        "index": 0,
        "split": "train",
        "row_id": "trajectory/1/0/0",
        "origin_prompt": state.origin_prompt,
        "rewritten_prompt": state.rewritten_prompt,
        "origin_image": state.origin_image,
        "edited_image": "unused",
        "num_turns": 2,
        "rollout_reward_scores": {},
        "raw_prompt": object(),
    }
    return {
        "data_source": "interleave_critic",
        "solution_str": text,
        "ground_truth": state.evaluation.model_dump(),
        "extra_info": row | extra,
    }


@pytest.fixture
def connect(tmp_path):
    """The client's function, with the file of an address, as verl calls it."""
    with ExitStack() as stack:

        def to(address):
            file = tmp_path / "address.json"
            stack.enter_context(address.written_to(file))
            return partial(load_client().compute_score, address=str(file))

        yield to


async def test_verl_gets_the_reward_and_its_parts_as_numbers(world, connect):
    service = world.service()
    async with serve_rewards(service) as address:
        ask, text = connect(address), answer(False, EXACT)
        numbers = await ask(**verl_call(world, text, global_steps=4))
        # A row of the dev split belongs to the step before its weights.
        assert (await ask(**verl_call(world, text, global_steps=4, split="dev")))["score"] > 0
    assert len(service.evaluation(4)) == len(service.step(5)) == 1
    (row,) = rollout_rows(world.journal.path)
    assert set(numbers) == KEYS and {type(value) for value in numbers.values()} == {float}
    assert (numbers["score"], numbers["step_reward"]) == (row.reward, row.step_reward)
    assert (row.step, row.row_id, numbers["masked"]) == (5, "trajectory/1/0/0", 0)


async def test_errors_have_the_same_keys(world, connect, tmp_path):
    texts = [answer(True), "?", answer(False, "nothing"), answer(False, "broken"), "\x00\ud800"]
    async with serve_rewards(world.service()) as address:
        ask = connect(address)
        got = [await ask(**verl_call(world, text)) for text in texts]
        got.append(await ask("x", "y", None, None))
    stopped, address = verl_call(world, answer(True)), str(tmp_path / "none.json")
    got.append(await ask(**stopped))
    got.append(await load_client().compute_score(**stopped, address=address))
    assert all(set(one) == KEYS for one in got)
    assert [one["masked"] for one in got] == [0, 0, 1, 0, 1, 1, 1, 1]
    assert [one["malformed"] for one in got] == [0, 1, 0, 0, 0, 0, 0, 0]
    assert all(one["score"] == 0 for one in [*got[1:3], *got[4:]])


def test_the_file_of_an_address_is_its_users_alone_and_removed(tmp_path):
    file = tmp_path / "address.json"
    file.write_text("of a run that was killed")
    file.chmod(0o644)
    with RewardAddress("http://127.0.0.1:1", "hush").written_to(file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text())["token"] == "hush"
    assert not file.exists()


async def test_it_listens_where_other_nodes_reach_it(world, connect):
    async with serve_rewards(world.service(), "127.0.0.2") as address:
        assert address.url.startswith("http://127.0.0.2:")
        got = await connect(address)(**verl_call(world, answer(True), truth=True))
    assert got["score"] > 0


async def test_concurrent_requests_get_their_own_answers(world, connect):
    texts = [answer(n % 2 == 0, f"{EXACT} Add a cloud number {n}.") for n in range(64)]
    async with serve_rewards(world.service(QUICK)) as address:
        ask = connect(address)
        got = await asyncio.gather(*(ask(**verl_call(world, text)) for text in texts))
    by_text = {row.response: row.reward for row in rollout_rows(world.journal.path)}
    assert [one["score"] for one in got] == [by_text[text] for text in texts]


async def test_the_token_is_required(world):
    async with serve_rewards(world.service()) as address, aiohttp.ClientSession() as session:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": address.token}):
            async with session.post(f"{address.url}/reward", json={}, headers=headers) as response:
                assert response.status == 401
        headers = {"Authorization": f"Bearer {address.token}"}
        async with session.post(
            f"{address.url}/reward", json={"step": -1}, headers=headers
        ) as response:
            assert response.status == 400 and "step" in await response.text()
    assert address.url.startswith("http://127.0.0.1:")
    assert address.token not in repr(address)


async def test_leaving_does_not_wait_for_a_hanging_draw(world, connect):
    settings = QUICK.model_copy(update={"draw_timeout_seconds": 600})
    async with serve_rewards(world.service(settings)) as address:
        ask = connect(address)
        request = asyncio.create_task(ask(**verl_call(world, answer(False, "hang"))))
        while not world.generator.calls:
            await asyncio.sleep(0.01)
        start = time.monotonic()
    assert time.monotonic() - start < 60  # of 600
    assert (await request)["masked"] == 1
    assert world.generator.active == 0


def test_a_caller_without_an_event_loop_is_served_from_a_thread(world, connect):
    with serve_rewards_in_thread(world.service()) as address:
        call = verl_call(world, answer(False, EXACT))
        got = asyncio.run(connect(address)(**call))
    assert got["score"] > 0.5


def test_the_client_needs_nothing_but_the_standard_library_and_aiohttp():
    tree = ast.parse(CLIENT.read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in imports
    }
    assert names - sys.stdlib_module_names == {"aiohttp"}
    assert Home.__module__.split(".")[0] not in CLIENT.read_text("utf-8")
