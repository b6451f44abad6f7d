# SPDX-License-Identifier: Apache-2.0
"""Texts of different lengths go on together: greedy, or drawn from the most likely tokens (top-k, top-p).

    python examples/generate_text.py                the hybrid model of hybrid_characters.py, trained for two minutes before
    python examples/generate_text.py --steps 0      untrained

`generate` takes any model that is called as model(ids, caches), with a cache for each of its `blocks`: of keys, or of states. Every
text has a random generator of its own, so that it is written in company as it is alone.
"""

import hybrid_characters
import torch
from running import add_machine, compute_on, new_parser
from torch import Tensor

import torch_lod as tl


def pick(logits: Tensor, draws: list[torch.Generator], temperature=1.0, top_k: int | None = None, top_p=1.0) -> Tensor:
    """A token for every row of logits; temperature 0: the most likely one, of equals the first."""
    if temperature == 0:
        return logits.argmax(1)
    logits = logits / temperature
    if top_k is not None:
        logits = logits.masked_fill(logits < logits.topk(min(top_k, logits.shape[1])).values[:, -1:], -torch.inf)
    if top_p < 1:  # the fewest tokens whose probabilities add up to top_p
        best, order = logits.softmax(1).sort(dim=1, descending=True, stable=True)
        logits = logits.masked_fill((best.cumsum(1) - best >= top_p).gather(1, order.argsort(1)), -torch.inf)
    noise = torch.stack([torch.rand(logits.shape[1], generator=draw, dtype=torch.float64) for draw in draws])
    return (logits - (-noise.log()).log()).argmax(1)  # Gumbel noise: the largest is a draw from the softmax


@torch.no_grad()
def generate(model, prompts: tl.LoDTensor, steps: int, end: int | None = None, seeds=None, **options) -> tl.LoDTensor:
    """The prompts, each with up to `steps` more tokens; `options` of `pick`, and a seed for every prompt."""
    count = prompts.num_sequences()
    draws = [torch.Generator().manual_seed(seed) for seed in (range(count) if seeds is None else seeds)]
    caches = [tl.Cache(prompts.lengths() + steps) for _ in model.blocks]
    rows, going = prompts, list(range(count))
    new: list[list[int]] = [[] for _ in going]
    for _ in range(steps):
        logits = tl.sequence_pool(model(rows, caches), "last")
        tokens = pick(logits, [draws[i] for i in going], **options)
        for i, token in zip(going, tokens.tolist()):
            new[i].append(token)
        keep = [end is None or token != end for token in tokens.tolist()]
        if not any(keep):
            break
        going = [i for i, goes_on in zip(going, keep) if goes_on]
        for cache in caches:
            cache.filter(keep)
        rows = tl.from_lengths(tokens[torch.tensor(keep)], [[1] * len(going)])
    return tl.cat([prompts, tl.lod_tensor(new, dtype=prompts.dtype)], along="within")


def main(steps: int, length: int) -> None:
    torch.manual_seed(0)
    model = hybrid_characters.main(steps, 1) if steps else hybrid_characters.Hybrid()
    prompts = tl.lod_tensor(
        [list(text) for text in (b"A cache ", b"For users who ", b"The gradient of a ", b"```python\n")]
    )
    ways: dict[str, dict] = {"greedy": {"temperature": 0}, "top-k": {"top_k": 8}, "top-p": {"top_p": 0.9}}
    for name, options in ways.items():
        for text in generate(model.eval(), prompts, length, **options).to_list():
            print(f"{name:7} {bytes(text).decode(errors='replace')!r}")


if __name__ == "__main__":
    parser = new_parser(__doc__)
    parser.add_argument("--steps", type=int, default=150, help="of training, default: %(default)s")
    parser.add_argument("--length", type=int, default=60, help="bytes to write, default: %(default)s")
    add_machine(parser.add_argument)
    asked = parser.parse_args()
    compute_on(asked)
    main(asked.steps, asked.length)
