"""What a profile says of GPUs: contradictions are refused when it is read, with the fix."""

import pytest
import yaml

from assets.core.profile import load_profile
from schemas import DocumentError, FoundryError
from training.gpu_assignment import GpuClaim, server_problem

ROLES = {"planner": "openai", "generator": "images", "critic": "openai", "scorer": "sketch"}
MODEL = "owner/agents"
AGENTS = {"kind": "agents", "model": MODEL, "gpus": [0]}
IMAGES = {"kind": "images", "model": "sketch", "gpus": [1]}

COMMAND = {"kind": "command", "model": "sketch", "gpus": 1}
CLUSTER = {"ray": {"address": "http://head:8265"}}


def content(servers=None, **sections):
    endpoint = {"endpoints": [{"server": "agents"}]}
    return {
        "name": "mine",
        "description": "Servers of its own",
        "roles": ROLES,
        "pack": "sketchbook",
        "sizes": {"demo": 1},
        "servers": {"agents": AGENTS, "images": IMAGES} | (servers or {}),
        "openai": endpoint | {"planner": {"model": MODEL}, "critic": {"model": MODEL}},
        "images": {"endpoints": [{"server": "images"}], "generator": {"model": "sketch"}},
        **sections,
    }


@pytest.fixture
def read(tmp_path):
    def read(servers=None, **sections):
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(content(servers, **sections)))
        load_profile.cache_clear()
        return load_profile(str(path))

    return read


GRPO = {"batch": 4, "mini_batch": 4, "n": 2, "tensor_parallel": 1}


@pytest.mark.parametrize(
    ("servers", "sections", "message"),
    [
        ({"agents": AGENTS | {"gpus": [0, 0]}}, {}, r"servers.agents.*gpus.*names a GPU twice"),
        (
            {"agents": AGENTS | {"gpus": [0, 2, 3], "tensor_parallel": 2}},
            {},
            "tensor_parallel 2 does not divide its 3 GPUs: set it to one of 1, 3",
        ),
        ({"agents": AGENTS | {"gpus": [1]}}, {}, "agents and images are needed at the same time"),
        ({"agents": AGENTS | {"model": "owner/other"}}, {}, "openai.planner: server agents serves"),
        ({"images": IMAGES | {"kind": "agents"}}, {}, "server images is of kind agents"),
        (
            {"planner": {"kind": "agents", "trained": "planner", "gpus": [1]}},
            {},
            r"images and planner are needed at the same time \(by evaluation and service\)",
        ),
        ({"planner": {"kind": "agents", "gpus": [0]}}, {}, "name either a `model`"),
        (
            None,
            {"images": {"endpoints": [{"server": "pics"}], "generator": {"model": "sketch"}}},
            r"images.generator: no `servers.pics`; there are: agents, images",
        ),
        (
            None,
            {"openai": {"endpoints": [{"server": "agents", "url": "http://x/v1"}]}},
            "has an address, a key and GPUs of its own",
        ),
        (
            None,
            {"training": {"critic_rl": {**GRPO, "gpus": 1}, "devices": {"rl": [1]}}},
            "rewards need images, which take all of GPU 1",
        ),
        (
            None,
            {
                "training": {
                    "critic_rl": {**GRPO, "gpus": 1, "reward": {"of": "trajectory"}},
                    "devices": {"rl": [0]},
                }
            },
            "rewards need agents and images, which take all of GPU 0",
        ),
        (
            None,
            {"training": {"critic_rl": {**GRPO, "gpus": 2}, "devices": {"rl": [0]}}},
            "training.devices.rl: 1 GPUs, but training.critic_rl.gpus is 2: make them equal",
        ),
        (
            None,
            {"training": {"launcher": {"kind": "ray", "address": "http://head:8265"}}},
            "name the cluster under `cluster.ray` as well",
        ),
        (
            {"images": COMMAND | {"command": ["serve", "{port}"]}},
            {"cluster": CLUSTER},
            r"servers.images.command: .* listen on \{host\}",
        ),
        (
            {"agents": AGENTS | {"gpus": 2, "memory": 0.5}},
            {"cluster": CLUSTER},
            "servers.agents.memory: Ray shares single GPUs only, and it takes 2",
        ),
        (
            None,
            {"cluster": CLUSTER, "training": {"critic_rl": {**GRPO, "gpus": 1}}},
            r"training.launcher: .*set it to \{kind: ray, address: http://head:8265\}",
        ),
        (None, {"on_gpus": {2: {"servers": {"agents": {"gpus": [1]}}}}}, "on_gpus.2.*same time"),
    ],
)
def test_contradictions_are_refused(read, servers, sections, message):
    with pytest.raises(DocumentError, match=rf"mine\.yaml:\d+: .*{message}"):
        read(servers, **sections)


def test_on_ray_numbers_of_gpus_count(read):
    command = COMMAND | {"gpus": [0], "command": ["serve", "{host}", "{port}"]}
    launcher = {"kind": "ray", "address": "http://head:8265"}
    training = {"critic_rl": {**GRPO, "gpus": 2}, "launcher": launcher}
    servers = {"agents": AGENTS | {"gpus": 4, "tensor_parallel": 2}, "images": command}
    profile = read(servers, cluster=CLUSTER, training=training)
    assert {server.ray for server in profile.servers.values()} == {"http://head:8265"}
    assert profile.servers["agents"].gpus == (0, 1, 2, 3)
    assert profile.gpu_assignment.needed_gpus() == 5
    assert profile.gpu_assignment.claim("rl", 2, machine=0) == GpuClaim()


def test_servers_may_share_a_gpu_by_its_memory(read):
    half = {"gpus": [0], "memory": 0.5}
    assert read({"agents": AGENTS | half, "images": IMAGES | half})


def test_a_training_takes_what_its_rewards_leave(read):
    grpo = {**GRPO, "gpus": 2}
    assignment = read(training={"critic_rl": grpo}).gpu_assignment
    assert assignment.claim("rl", 2, machine=4) == GpuClaim((0, 2))  # 1 has the images
    assert assignment.claim("sft", 2, machine=4) == GpuClaim((0, 1))
    with pytest.raises(FoundryError, match=r"2 GPUs beside servers on \[1\].*machine has 2"):
        assignment.claim("rl", 2, machine=2)
    assert "lower `gpus`" in assignment.training_problem(2)
    assert assignment.training_problem(3) is None


def test_the_generators_of_rewards_need_their_servers(read):
    backends = {"gemini": {"generator": {"model": "nano"}}}
    roles = {"roles": ROLES | {"generator": "gemini", "scorer": "gemini"}, **backends}
    reward = {"generators": ["gemini", "images"]}
    training = {"critic_rl": {**GRPO, "gpus": 2, "reward": reward}}
    profile = read(training=training, **roles)
    assert profile.generators == ("gemini", "images")
    assert profile.gpu_assignment.claim("rl", 2, machine=4) == GpuClaim((0, 2))
    alone = read(training={"critic_rl": {**GRPO, "gpus": 2}}, **roles).gpu_assignment
    assert alone.claim("rl", 2, machine=4) == GpuClaim((0, 1))
    devices = {**training, "devices": {"rl": [1, 2]}}
    with pytest.raises(DocumentError, match=r"devices.rl: rewards need images.* all of GPU 1"):
        read(training=devices, **roles)
    scorer = {"scorer": {"model": MODEL, "endpoints": [{"server": "more"}]}}
    changes = {"roles": roles["roles"] | {"scorer": "openai"}, "training": training}
    openai = {"openai": content()["openai"] | scorer}
    with pytest.raises(DocumentError, match=r"images and more .*\(by rewards\) and take 200%"):
        read({"more": AGENTS | {"gpus": [1]}}, **backends, **changes, **openai)


def test_a_training_shares_a_gpu_with_the_images_of_its_rewards(read):
    training = {"critic_rl": {**GRPO, "gpus": 1}, "devices": {"rl": [1]}}
    shared = read({"images": IMAGES | {"memory": 0.25}}, training=training)
    assert shared.gpu_assignment.claim("rl", 1, machine=2) == GpuClaim((1,), 0.75)


def test_weights_have_to_fit(read, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "weights.safetensors").write_bytes(bytes(3000))
    changes = {"model": str(model), "gpus": [0, 2], "memory": 0.5}
    server = read({"agents": AGENTS | changes}).servers["agents"]
    assert server_problem(server, 3, gpu_bytes=3001) is None  # half of them on each
    assert "no GPU 2" in server_problem(server, 2, gpu_bytes=3001)
    assert "raise its `memory`" in server_problem(server, 3, gpu_bytes=2999)
