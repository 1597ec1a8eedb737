"""Training batches where a group's shared prompt is computed once.

A row is one prompt followed by the continuations of its members; a mask lets every continuation see the prompt and
itself only, and positions restart after the prompt. Values and gradients equal those of separate sequences, up to
float tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genenv.contracts.types import Datum


@dataclass(frozen=True)
class Batch:
    """R rows of L tokens; N trained tokens, each predicted from flat position `source` (into R*L).

    `mask` is None where no row holds more than one datum: then each token sees all before it, and attention knows
    faster ways. Padding stands behind a row, where nothing that counts sees it. `datum` and `offset` say which token of which datum the n-th trained token is.
    """

    tokens_RL: Tensor
    positions_RL: Tensor
    mask_R1LL: Tensor | None
    source_N: Tensor
    target_N: Tensor
    weight_N: Tensor
    logprob_N: Tensor
    datum_N: Tensor
    offset_N: Tensor


def _rows(data: Sequence[Datum], budget: int, hidden: int) -> list[list[int]]:
    """Datum indices by row: the members of a group together, as many as the token budget admits and as pay."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, datum in enumerate(data):
        if any(datum.weights[: datum.prompt_length]):
            raise ValueError("a datum has a weight on its prompt")
        if any(datum.weights):
            groups.setdefault((datum.group, -1) if datum.group >= 0 else (-1, i), []).append(i)
    rows: list[list[int]] = []
    for members in groups.values():
        row: list[int] = []
        length = 0
        for i in members:
            own = len(data[i].tokens) - data[i].prompt_length
            fits = length + own <= budget and pays(data[i].prompt_length, length, own, hidden)
            if row and not (fits and data[i].tokens[: data[i].prompt_length] == _prompt(data[row[0]])):
                rows.append(row)
                row = []
            length = (length if row else data[i].prompt_length) + own
            row.append(i)
        rows.append(row)
    return rows


def pays(prompt: int, length: int, own: int, hidden: int) -> bool:
    """Whether a continuation of `own` tokens costs less in a row of `length` than behind a prompt of its own.

    In a row the prompt's tokens are not computed again, but every token is compared with every other. The products of
    one token cost as much as some 6 `hidden` comparisons, of which attention under a mask does about half as many in
    the same time.
    """
    compared_more = (length + own) ** 2 - length**2 - (prompt + own) ** 2
    return compared_more < 3 * hidden * prompt


def _prompt(datum: Datum) -> tuple[int, ...]:
    return datum.tokens[: datum.prompt_length]


def batches(data: Sequence[Datum], budget: int, pad: int, device: torch.device, hidden: int) -> Iterator[Batch]:
    """Cut `data` into batches of at most `budget` tokens, padding included (a longer row is its own batch).

    Data without any weight are left out: they have no gradient. `hidden` is the width of the model.
    """
    rows = _rows(data, budget, hidden)

    def length(row: list[int]) -> int:
        first = data[row[0]]
        return first.prompt_length + sum(len(data[i].tokens) - data[i].prompt_length for i in row)

    rows.sort(key=length)
    start = 0
    while start < len(rows):
        end = start + 1
        while end < len(rows) and (end + 1 - start) * length(rows[end]) <= budget:
            end += 1
        yield _batch(data, rows[start:end], length(rows[end - 1]), pad, device)
        start = end


def _batch(data: Sequence[Datum], rows: list[list[int]], width: int, pad: int, device: torch.device) -> Batch:
    tokens_RL = torch.full((len(rows), width), pad)
    positions_RL = torch.arange(width).repeat(len(rows), 1)
    segment_RL = torch.full((len(rows), width), -1)
    columns: list[tuple[int, int, float, float, int, int]] = []
    for r, row in enumerate(rows):
        prompt = _prompt(data[row[0]])
        at = len(prompt)
        tokens_RL[r, :at] = torch.tensor(prompt, dtype=torch.long)
        positions_RL[r, :at] = torch.arange(at)
        segment_RL[r, :at] = 0
        for member, i in enumerate(row, 1):
            datum = data[i]
            own = datum.tokens[datum.prompt_length :]
            tokens_RL[r, at : at + len(own)] = torch.tensor(own, dtype=torch.long)
            positions_RL[r, at : at + len(own)] = torch.arange(len(prompt), len(datum.tokens))
            segment_RL[r, at : at + len(own)] = member
            for j, token in enumerate(own):
                t = datum.prompt_length + j
                if datum.weights[t]:
                    source = r * width + (at + j - 1 if j else len(prompt) - 1)
                    old = datum.logprobs[t] if datum.logprobs else 0.0
                    columns.append((source, token, datum.weights[t], old, i, t))
            at += len(own)
    mask_R1LL = None
    if max(map(len, rows)) > 1:
        same_RLL = segment_RL[:, :, None] == segment_RL[:, None, :]
        to_prompt_RLL = (segment_RL == 0)[:, None, :] & (segment_RL >= 0)[:, :, None]
        mask_RLL = (same_RLL | to_prompt_RLL) & torch.ones(width, width, dtype=torch.bool).tril()
        mask_R1LL = mask_RLL[:, None].to(device)
    sources, targets, weights, logprobs, indices, offsets = zip(*columns, strict=True)
    return Batch(
        tokens_RL.to(device),
        positions_RL.to(device),
        mask_R1LL,
        torch.tensor(sources, device=device),
        torch.tensor(targets, device=device),
        torch.tensor(weights, device=device),
        torch.tensor(logprobs, device=device),
        torch.tensor(indices),
        torch.tensor(offsets),
    )
