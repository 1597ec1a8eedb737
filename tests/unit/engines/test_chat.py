"""Chat templates as they are found in the wild: what they lack is made up for, what they lose is an error."""

from __future__ import annotations

import pytest
from random_tokens import random_tokenizer

from genenv.contracts.engine import ChatFormat
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Message
from genenv.engines.chat import TemplateFormat

SYSTEM, USER = Message("system", "Reply with one <tool_call> only. KEEP-9"), Message("user", "time in UTC?")
TOOL = {"type": "function", "function": {"name": "get_time", "description": "Time.", "parameters": {"type": "object"}}}
PLAIN = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}" + (
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
RAISES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
DROPS = PLAIN.replace("<s>{{", "{% if m.role in ('user', 'assistant') %}<s>{{").replace("<e>\n", "<e>\n{% endif %}")


def chat_format(template: str | None) -> ChatFormat:
    tokenizer = random_tokenizer()
    tokenizer.chat_template = template
    return TemplateFormat(tokenizer)


@pytest.mark.parametrize("template", [PLAIN, RAISES, DROPS], ids=["system", "raises", "drops"])
def test_an_instruction_survives_every_template(template: str) -> None:
    text = chat_format(template).render(Chat((SYSTEM, USER)))
    assert text.count("KEEP-9") == 1
    assert text.count("time in UTC?") == 1
    assert text.index("KEEP-9") < text.index("time in UTC?")


@pytest.mark.parametrize("template", [PLAIN, RAISES, DROPS], ids=["system", "raises", "drops"])
def test_tools_survive_a_template_that_ignores_them(template: str) -> None:
    assert chat_format(template).render(Chat((SYSTEM, USER), (TOOL,))).count('"get_time"') == 1
    assert chat_format(template).render(Chat((USER,), (TOOL,))).count('"get_time"') == 1


def test_a_tool_result_becomes_a_user_turn_where_the_template_knows_no_tool_role() -> None:
    text = chat_format(DROPS).render(Chat((USER, Message("assistant", "a"), Message("tool", "12:00"))))
    assert "<s>user\n<tool_response>\n12:00\n</tool_response><e>" in text
    assert "<s>tool\n12:00<e>" in chat_format(PLAIN).render(
        Chat((USER, Message("assistant", "a"), Message("tool", "12:00")))
    )


def test_a_model_without_a_template_is_refused() -> None:
    with pytest.raises(InputError, match="no chat template"):
        chat_format(None)


def test_a_template_that_loses_the_user_is_refused() -> None:
    with pytest.raises(InputError, match="loses the user's text"):
        chat_format("<s>assistant\n")


def test_turns_are_appended_without_rendering_the_past_again() -> None:
    chat = chat_format(PLAIN)
    prompt = chat.encode(Chat((USER,)))
    written = (*chat.encode_text("one"), chat.eos)
    follow = chat.turn((Message("tool", "two"),), ended=True)
    whole = chat.render(Chat((USER, Message("assistant", "one"), Message("tool", "two"))))
    assert chat.decode(prompt + written + follow) == whole
    assert chat.turn((Message("tool", "two"),), ended=False) == (chat.eos, *follow)


def test_the_end_of_turn_is_the_templates_not_the_declared_one() -> None:
    tokenizer = random_tokenizer()
    tokenizer.chat_template = PLAIN
    tokenizer.eos_token = "<pad>"
    assert tokenizer.decode([TemplateFormat(tokenizer).eos]) == "<e>"


def test_decode_drops_the_end_of_turn_and_keeps_other_special_tokens() -> None:
    chat = chat_format(PLAIN)
    assert chat.decode((*chat.encode_text("<s>x"), chat.eos)) == "<s>x"
    assert chat.decode(()) == ""
