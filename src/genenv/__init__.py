"""GenEnv: train a tool-using LLM agent by co-evolving it with an environment simulator."""

__version__ = "0.1.0"
