"""The plan against figures worked out by hand, and the configurations that ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genenv.config.load import build_config, load_config
from genenv.config.sections import Config, EngineConfig
from genenv.config.shipped import find_config, shipped
from genenv.contracts.errors import InputError
from genenv.planning import plan as plans
from genenv.planning.cluster import Layout, command, server_memory
from genenv.planning.devices import Device
from genenv.planning.memory import Precision, Sampling, Training, sampling_bytes, standing, training_bytes
from genenv.planning.plan import Lengths, Round, forward, make_plan, rendered, stages
from genenv.planning.shapes import PUBLISHED, Shape, parse, shape_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "smollm2_bfcl" / "config.toml"
CONFIGS = [*(find_config(Path(name)) for name in shipped()), EXAMPLE]
SMALL = Shape(width=8, layers=2, heads=2, kv_heads=1, head=4, inner=16, vocabulary=32, tied=True)


@pytest.mark.parametrize(
    ("model", "parameters", "body"),
    [
        ("builtin:tiny", 2_177_408, 1_784_192),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008, 106_203_456),
        ("HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120, 314_635_200),
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, 357_898_112),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, 1_310_340_608),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688, 2_774_773_760),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 6_525_621_760),
        ("Qwen/Qwen2.5-14B-Instruct", 14_770_033_664, 13_212_898_304),
        ("Qwen/Qwen3-0.6B", 596_049_920, 440_467_456),
        ("Qwen/Qwen3-1.7B", 1_720_574_976, 1_409_410_048),
        ("Qwen/Qwen3-4B", 4_022_468_096, 3_633_511_936),
        ("Qwen/Qwen3-8B", 8_190_735_360, 6_946_075_648),
    ],
)
def test_parameters_are_those_of_the_model(model: str, parameters: int, body: int) -> None:
    """The published counts; the exact numbers are those of transformers, built without memory."""
    shape = shape_of(model)
    assert (shape.parameters, shape.body) == (parameters, body)


def test_every_known_shape_is_checked() -> None:
    assert len(PUBLISHED) == 11


def test_a_small_shape_by_hand() -> None:
    # a layer: q 8x8, o 8x8, k and v 8x4 each, three of 8x16, two norms of 8
    assert SMALL.body == 2 * (64 + 64 + 32 + 32 + 3 * 128 + 16) + 8
    assert SMALL.parameters == SMALL.body + 32 * 8
    # rank 2: q and o 8+8 each, k and v 8+4 each, three of 8+16
    assert SMALL.adapter(2) == 2 * 2 * (16 + 16 + 12 + 12 + 3 * 24)
    assert SMALL.cache(4) == 2 * 2 * 4 * 4


def test_cache_of_the_published_7b() -> None:
    """28 layers x 4 heads x 128 x 2 (keys and values) x 2 bytes: 56 KiB a token."""
    assert PUBLISHED["Qwen/Qwen2.5-7B-Instruct"].cache(2) == 57_344


def test_unknown_models_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not on this machine and not among the known shapes"):
        shape_of("Nobody/Nothing-1B")
    with pytest.raises(InputError, match="expected a model_type among llama, qwen2, qwen3, found mamba"):
        parse({"model_type": "mamba"}, "config.json")


def test_precision_decides_on_the_merged_copy() -> None:
    assert Precision.of(EngineConfig(), cuda=False).merged
    assert not Precision.of(EngineConfig(dtype="bfloat16"), cuda=False).merged
    on_gpu = Precision.of(EngineConfig(), cuda=True)
    assert (on_gpu.item, on_gpu.merged) == (2, False)


def test_memory_by_hand() -> None:
    wide = Precision(item=4, merged=True, program=100, gaps=1.0)
    assert standing(SMALL, 2, wide) == {
        "program": 100,
        "weights": 4 * SMALL.parameters,
        "adapters": 2 * 16 * SMALL.adapter(2),
        "merged copy": 4 * (SMALL.body + 256),
    }
    # 4 samples of 10 + 6 tokens, 64 bytes each, and a layer of two once more; logits: 4 x 32 x 28
    assert sampling_bytes(SMALL, wide, Sampling(1, 4, 10, 6)) == 4 * 16 * 64 * 3 // 2 + max(
        10 * (4 * (max(64, 40 + 24) + 24) + 10 * 5), 4 * 32 * 28
    )
    # a layer and token in float32: two norms and two normed inputs 4 x 8, q k v out 4 x 8, seven inner of rank 2, MLP 4 x 16
    layer = 4 * (4 * 8 + 4 * 8 + 7 * 2 + 4 * 16)
    gradients = 4 * (4 * 16 + 3 * 8)
    mask = 20 * (1 + 4 * 2)
    assert training_bytes(SMALL, 2, wide, Training(20, 20, 12)) == 20 * (2 * layer + gradients + mask) + 12 * 32 * 16
    narrow = Precision(item=2, merged=False, program=0, gaps=1.0)
    # in bfloat16: two norms and five inputs of adapters in float32, q k v out, the input of o, gate silu up, input of down
    layer = 4 * 7 * 8 + 2 * 4 * 8 + 4 * 8 + 4 * 7 * 2 + 2 * 3 * 16 + 4 * 16
    assert (
        training_bytes(SMALL, 2, narrow, Training(20, 20, 12, masked=False))
        == 20 * (2 * layer + gradients) + 12 * 32 * 14
    )


def test_operations_by_hand() -> None:
    # 2 a weight and token, the head for 3 tokens, attention: 4 x layers x 8 x context 5
    assert forward(SMALL, 10, 3, 5) == 2 * SMALL.body * 10 + 2 * 256 * 3 + 4 * 2 * 8 * 5 * 10


def test_tokens_of_a_round_by_hand() -> None:
    config = build_config(
        {"simulator": {"tasks": 10, "max_tokens": 50, "replay": 0.5, "anchor": 1.0, "kl": 0.0},
         "agent": {"group_size": 4, "replay": 0.5, "max_tokens": 20, "max_prompt_tokens": 100}},
        "test",
    )  # fmt: skip
    tokens = Round.of(config, Lengths.of(config), shared=True)
    assert tokens.simulator_read == 10 * 100
    assert tokens.simulator_written == 10 * 50
    assert tokens.agent_read == 15 * 100  # a group reads its prompt once
    assert tokens.agent_written == 15 * 4 * 20
    assert tokens.reference == pytest.approx(0.8 * 15 * (100 + 4 * 20))
    regression = 0.8 * 10 * 2.5 * 150
    assert tokens.update == pytest.approx(0.8 * 15 * 180 + regression)
    assert tokens.separate == pytest.approx(0.8 * 15 * 4 * 120 + regression)


def test_an_update_is_a_forward_and_a_backward_pass() -> None:
    """Frozen weights have no gradient, so backward costs as much as forward; computing activations again adds one."""
    tokens = Round(0, 0, 0, 0, 0, update=120, separate=120)
    lengths = Lengths(prompt=100, agent=20, simulator=20, turns=1)
    once = forward(SMALL, 120, 20, 60)
    assert stages(SMALL, tokens, lengths, recompute=False)["updates"] == (pytest.approx(2 * once), 0.0)
    assert stages(SMALL, tokens, lengths, recompute=True)["updates"] == (pytest.approx(3 * once), 0.0)


def test_several_turns_read_the_transcript_again() -> None:
    lengths = Lengths(prompt=100, agent=10, simulator=50, turns=3)
    assert lengths.episode == 50  # three answers, two replies
    config = build_config({"simulator": {"tasks": 1}, "agent": {"group_size": 2, "replay": 0.0}}, "test")
    assert Round.of(config, lengths, shared=True).agent_read == 100 + 2 * (120 + 140)


def test_a_plan_that_does_not_fit_says_what_to_lower() -> None:
    config = Config(engine=EngineConfig(model="Qwen/Qwen2.5-7B-Instruct", token_budget=65536))
    found = make_plan(config, "h100-80gb", 1)
    assert not found["fits"]
    assert found["advice"] == "lower engine.token_budget to 4096"
    assert make_plan(config, "l4-24gb", 1)["advice"] != found["advice"]
    with pytest.raises(InputError, match="--gpu a99: expected one of l4-24gb"):
        make_plan(config, "a99", 1)


def test_the_rates_of_this_machine_are_measured_where_no_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "this_cpu", lambda: Device("cpu", 24, 1e11, 1e10, measured=True))
    found = make_plan(Config(), None, 1)
    assert found["fits"]
    work, seconds = found["teraflop_a_round"]["updates"], found["seconds_a_round"]["updates"]
    assert seconds == pytest.approx(1e12 * work / 1e11)  # a measured rate is not discounted
    assert json.loads(json.dumps(found)) == found


def server(**engine: object) -> Config:
    """A configuration for a server, whether or not this engine is there."""
    update = {"kind": "tinker", "base_url": "http://localhost:9000", "base_model": "Qwen/Qwen2.5-7B-Instruct", **engine}
    return Config(engine=EngineConfig().model_copy(update=update))


def test_a_server_is_planned_for_its_own_devices() -> None:
    found = make_plan(server(), "h100-80gb", 8)
    assert found["server"]["layout"] == {"trainers": 4, "samplers": 4, "split": 1}
    assert found["fits"]
    assert found["memory_gib"]["training: weights"] == pytest.approx(2 * 7_615_616_512 / 2**30)
    assert "--port 9000 --base-model Qwen/Qwen2.5-7B-Instruct --backend megatron" in found["server"]["command"]
    assert "--backend megatron" in rendered(found)
    # no shared prompts on a server
    assert found["tokens_a_round"]["update"] == found["tokens_a_round"]["separate"]
    with pytest.raises(InputError, match="at least 2 devices"):
        make_plan(server(), "h100-80gb", 1)


def test_large_models_are_split_and_many_devices_become_nodes() -> None:
    shape = PUBLISHED["Qwen/Qwen2.5-14B-Instruct"]
    assert Layout.of(shape, 8, 22.5) == Layout(trainers=4, samplers=4, split=4)
    settings = json.loads(command("m", "http://host", Layout.of(shape, 32, 80)).split("'")[1])
    assert settings["trainer.placement.policy_num_nodes"] == 2
    assert settings["trainer.placement.policy_num_gpus_per_node"] == 8
    assert settings["generator.inference_engine.num_engines"] == 16
    whole, half = (server_memory(shape, Layout(4, 4, split), 16, 9000, 80) for split in (1, 2))
    assert half["training: weights"] == whole["training: weights"] / 2


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_configurations_load_and_fit_what_they_are_for(path: Path) -> None:
    config = load_config(path)
    device = {"gpu24_qwen1.5b": "rtx4090-24gb", "gpu80_qwen7b": "a100-80gb", "cluster8_paper": "h100-80gb"}.get(
        path.stem
    )
    if device is not None:
        found = make_plan(config, device, 8)
        assert found["fits"], found["memory_gib"]


@pytest.mark.parametrize("devices", range(2, 40))
def test_every_number_of_devices_has_a_layout(devices: int) -> None:
    shape = Shape(8192, 80, 64, 8, 128, 28672, 128256, False)  # 70 billion parameters
    layout = Layout.of(shape, devices, 80)
    assert layout.trainers >= 1
    assert layout.trainers % layout.split == 0
    assert layout.trainers + layout.samplers == devices
    settings = json.loads(command("m", "http://host", layout).split("'")[1])
    nodes, each = (settings[f"trainer.placement.policy_num_{k}"] for k in ("nodes", "gpus_per_node"))
    assert nodes * each == layout.trainers
    assert each <= 8
