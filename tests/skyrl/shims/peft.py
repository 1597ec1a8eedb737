"""Stands in for peft in a SkyRL server with the JAX backend, which writes an adapter's description with it."""

import json
from pathlib import Path


class LoraConfig:
    def __init__(self, **fields):
        self._fields = fields

    def save_pretrained(self, folder):
        (Path(folder) / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **self._fields}))
