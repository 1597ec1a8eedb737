"""The plan for a Tinker-API server of one's own: SkyRL with Megatron for training and vLLM for sampling.

Several adapters need training and sampling on devices of their own (SkyRL 0.4.0, "Multi-tenancy"), so half of the
devices train and half sample. Nothing here was run on a GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from genenv.contracts.errors import InputError
from genenv.planning.memory import ADAM
from genenv.planning.shapes import Shape

CACHE_SHARE = 0.8
"""vLLM's `gpu_memory_utilization`: weights and cache together."""
LOGITS_CHUNK = 1024
"""SkyRL's `trainer.logprobs_chunk_size`, in tokens."""
PER_NODE = 8
GIB = 2**30


@dataclass(frozen=True)
class Layout:
    """`split`: devices that share one copy of the weights (tensor parallel), the same for training and sampling."""

    trainers: int
    samplers: int
    split: int

    @staticmethod
    def of(shape: Shape, devices: int, memory: float) -> Layout:
        """Raises InputError where fewer than two devices are there."""
        if devices < 2:
            raise InputError(
                f"engine.kind tinker: expected at least 2 devices (one trains, one samples), found {devices}"
            )
        trainers, split = devices // 2, 1
        while 2 * shape.parameters / split > 0.4 * memory * GIB and 2 * split <= trainers:
            split *= 2
        whole = PER_NODE if trainers > PER_NODE else split  # nodes, or groups of split devices
        trainers -= trainers % whole
        return Layout(trainers, devices - trainers, split)


def server_memory(shape: Shape, layout: Layout, rank: int, longest: int, memory: float) -> dict[str, float]:
    """Bytes on one training device, on one sampling device, and of the host.

    Megatron computes activations again by default, so that only a layer's input is kept, and one sequence is trained at a time.
    """
    weights = 2 * shape.parameters / layout.split
    layer = 4 * (3 * shape.inner + 4 * shape.attention + 6 * shape.width)
    activations = longest * (2 * shape.layers * shape.width + layer) / layout.split
    logits = (
        min(longest, LOGITS_CHUNK) * 12 * shape.vocabulary / layout.split
        + 2 * longest * shape.vocabulary / layout.split
    )
    adapter = shape.adapter(rank) * ADAM / layout.split
    return {
        "training: weights": weights,
        "training: adapter in use": adapter,
        "training: activations": activations,
        "training: logits": logits,
        "training: total": weights + adapter + activations + logits + GIB,
        "sampling: weights": weights,
        "sampling: cache": max(0.0, CACHE_SHARE * memory * GIB - weights - 2 * GIB),
        "sampling: total": CACHE_SHARE * memory * GIB,
        "host: both adapters": 2.0 * shape.adapter(rank) * ADAM,
    }


def command(model: str, base_url: str, layout: Layout) -> str:
    """The line that starts the server, in a checkout of SkyRL. Four adapter slots: a resumed run needs two more."""
    nodes = max(1, layout.trainers // PER_NODE)
    settings = {
        "trainer.placement.colocate_all": False,
        "trainer.placement.policy_num_nodes": nodes,
        "trainer.placement.policy_num_gpus_per_node": layout.trainers // nodes,
        "trainer.policy.megatron_config.tensor_model_parallel_size": layout.split,
        "trainer.policy.megatron_config.lora_config.merge_lora": False,
        "trainer.policy.model.lora.max_loras": 2,
        "trainer.policy.model.lora.max_cpu_loras": 4,
        "trainer.micro_train_batch_size_per_gpu": 1,
        "trainer.micro_forward_batch_size_per_gpu": 1,
        "generator.inference_engine.num_engines": layout.samplers // layout.split,
        "generator.inference_engine.tensor_parallel_size": layout.split,
        "generator.inference_engine.gpu_memory_utilization": CACHE_SHARE,
    }
    port = urlsplit(base_url).port or 8000
    return (
        f"uv run --extra tinker --extra megatron -m skyrl.tinker.api --host 0.0.0.0 --port {port} "
        f"--base-model {model} --backend megatron --backend-config '{json.dumps(settings)}'"
    )
