"""Devices that a plan can be made for."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from genenv.contracts.errors import need

GIB = 2**30
COMPUTE, BANDWIDTH = 0.4, 0.6
"""Shares of a data sheet's peaks that large products and decoding are expected to reach."""


@dataclass(frozen=True)
class Device:
    """GiB of memory, peak operations (bfloat16, dense) and bytes a second."""

    name: str
    memory: float
    flops: float
    bandwidth: float
    measured: bool = False

    @property
    def products(self) -> float:
        """Operations a second that are expected of large products."""
        return self.flops * (1.0 if self.measured else COMPUTE)


DEVICES = {
    d.name: d
    for d in (
        Device("l4-24gb", 22.5, 121e12, 300e9),
        Device("rtx4090-24gb", 24, 165e12, 1008e9),
        Device("a100-80gb", 80, 312e12, 2039e9),
        Device("h100-80gb", 80, 989e12, 3350e9),
        Device("h200-141gb", 140, 989e12, 4800e9),
    )
}
"""Peaks from the makers' data sheets."""


def this_cpu() -> Device:
    """This machine: its memory, and the rates of a float32 product and of a copy, measured for a moment.

    Raises MissingExtraError without torch, which is what would compute.
    """
    need("local", "measuring this CPU", "torch")
    import torch

    a, big, other = torch.ones(1024, 1024), torch.ones(2**25), torch.ones(2**25)

    def rate(work: Callable[[], object], amount: float) -> float:
        work()
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - start)
        return amount / best

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return Device(
        "cpu", memory, rate(lambda: a @ a, 2 * 1024**3), rate(lambda: other.copy_(big), 8 * 2**25), measured=True
    )
