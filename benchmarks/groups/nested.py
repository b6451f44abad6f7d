# SPDX-License-Identifier: Apache-2.0
"""The nested RNN of the demo in training: speed and memory of its three forms, on functions (token > line > function) and on
texts as long as reviews are (word > sentence > review).

Every form trains in a process of its own, so that its memory can be told from that of the others; they take turns.
"""

import multiprocessing
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import torch_lod as tl

from ..cases import Case, Cases, Run, Setup
from ..goals import Goal, Times, faster_than

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKENS, CLASSES = 8000, 2
FEW = (4, 100)  # documents and seed of the batch that is checked
#: The example's forms by their names in the table, ours first.
FORMS = {
    "tl.nn.LSTM at both levels": "lod",
    "padded twin, layouts given": "padded",
    "packed twin, layouts given": "packed",
}

Batch = tuple[Tensor, list[Tensor], Tensor]  # tokens; lines per function, tokens per line; a label per function


#: Words in every sentence of 48 of the reviews of Pang and Lee 2004 (polarity dataset v2.0), a line a review.
REVIEWS = Path(__file__).with_name("movie_reviews.txt")


def _batch(data: str, count: int, seed: int) -> Batch:
    """Functions have 5 to 24 lines, a line 1 to 60 tokens, most lines short; reviews are as long as those recorded."""
    rng = np.random.default_rng(seed)
    if data == "reviews":
        every = [np.array(line.split(), int) for line in REVIEWS.read_text().splitlines()]
        taken = [every[i % len(every)] for i in range(seed * count, (seed + 1) * count)]
        lines, words = np.array([len(review) for review in taken]), np.concatenate(taken)
    else:
        lines = rng.integers(5, 25, count)
        words = rng.lognormal(2.0, 0.8, lines.sum()).astype(int).clip(1, 60)
    tokens, labels = rng.integers(0, TOKENS, words.sum()), rng.integers(0, CLASSES, count)
    return torch.from_numpy(tokens), [torch.from_numpy(lines), torch.from_numpy(words)], torch.from_numpy(labels)


def cases(setup: Setup) -> Cases:
    count, size = (1, 32) if setup.quick else (3, 64)
    yield _training("functions", count, size, setup, "padded", (faster_than(2, "padded"), faster_than(1.3, "packed")))
    count, size = (1, 8) if setup.quick else (3, 16)
    yield _training("reviews", count, size, setup, "packed", (faster_than(8, "padded"), faster_than(4, "packed")))


def _training(data: str, count: int, size: int, setup: Setup, against: str, goals: tuple[Goal, ...]) -> Case:
    """Batches of so many documents; memory is compared with that of the twin `against`."""
    few = (data, *FEW)
    batches = [_batch(data, size, seed) for seed in range(count)]
    tokens = sum(len(batch[0]) for batch in batches)
    twins, settings = _example()
    processes = {name: Process(form, data, count, size, setup) for name, form in FORMS.items()}
    ours, twin = next(iter(processes)), next(name for name in processes if against in name)

    def share(_: Times) -> float:
        return processes[ours].ask("memory") / processes[twin].ask("memory")

    memory = Goal(f"of the {against} twin's memory", 1 / 3, share)

    def fact(name: str, seconds: float) -> str:
        return f"{tokens / seconds:,.0f} tokens/s, {processes[name].ask('memory'):.0f} MB extra"

    def close() -> None:
        for process in processes.values():
            process.close()

    return Case(
        name=f"train, {count} x {size} {data}",
        ours={ours: processes[ours].run()},
        peers={name: process.run() for name, process in processes.items() if name != ours},
        floor=_products([batch[1] for batch in batches], settings, setup.device),
        floor_is="the products of the LSTMs, as GEMMs",
        expected=lambda: _plainly(settings, _first_state(twins, settings), _batch(*few)),
        tolerance=1e-4,
        goals=(*goals, memory),
        fact=fact,
        close=close,
    )


def _example():
    """The example's twins, and the settings of its model without what is random in training."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    import padded_twin
    from training import Settings

    return padded_twin, Settings(dropout=0.0)


def _first_state(twins, settings) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return twins.PaddedTwin(settings, TOKENS, CLASSES).state_dict()


def _products(structures: list[list[Tensor]], settings, device: torch.device) -> Callable[[], None]:
    """Input and recurrent product of both LSTMs and the gradients of their factors, one product for all rows."""
    hidden = settings.hidden
    work = []
    for structure in structures:
        for rows, features in zip((int(structure[1].sum()), len(structure[1])), (settings.embedding, hidden)):
            for inputs in (features, hidden):
                x, weight = torch.ones(rows, inputs, device=device), torch.ones(4 * hidden, inputs, device=device)
                work.append((x, weight, torch.ones(rows, 4 * hidden, device=device)))

    def floor():
        for x, weight, gates in work:
            torch.mm(x, weight.t(), out=gates)
            torch.mm(gates, weight, out=x)
            torch.mm(gates.t(), x, out=weight)

    return floor


def _plainly(settings, state: dict[str, Tensor], batch: Batch) -> tuple[Tensor, ...]:
    """Loss and gradients, by name, line by line and function by function in float64."""
    tokens, (lines, words), labels = batch
    parts = {
        "embed": nn.Embedding(TOKENS, settings.embedding),
        "words": nn.LSTM(settings.embedding, settings.hidden),
        "lines": nn.LSTM(settings.hidden, settings.hidden),
        "out": nn.Linear(settings.hidden, CLASSES),
    }
    model = nn.ModuleDict(parts).double()
    model.load_state_dict({name: t.double() for name, t in state.items()})
    read = [model["words"](model["embed"](line))[0][-1] for line in tokens.split(words.tolist())]
    functions = [model["lines"](function)[0][-1] for function in torch.stack(read).split(lines.tolist())]
    loss = nn.functional.cross_entropy(model["out"](torch.stack(functions)), labels)
    loss.backward()
    return (loss.detach(), *(p.grad for _, p in sorted(model.named_parameters())))


# ---- one form, in its own process


class Form:
    """A model and its batches. Those of the twins are padded beforehand; the LoDs are made in every step."""

    def __init__(self, form: str, data: str, count: int, size: int, setup: Setup):
        torch.set_num_threads(setup.threads)
        self.form, self.device = form, setup.device
        self.twins, self.settings = _example()
        self.model = self._model()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.few = (data, *FEW)
        self.batches = [self._prepared(_batch(data, size, seed)) for seed in range(count)]
        self._step(self._prepared(_batch(*self.few)))  # loads code, makes gradients and the optimizer's state
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        self.before = self._memory()[0]

    def _model(self) -> nn.Module:
        return self.twins.make_form(self.form, self.settings, _first_state(self.twins, self.settings)).to(self.device)

    def _prepared(self, batch: Batch) -> tuple[Callable[[], tuple], Tensor]:
        tokens, lengths, labels = batch[0].to(self.device), batch[1], batch[2].to(self.device)
        if self.form == "lod":
            return lambda: (tl.from_lengths(tokens, lengths),), labels
        padded, *structure = self.twins.form_inputs(self.form, batch[0], lengths)
        if self.form == "padded":  # the packed one wants its lengths in host memory
            structure = [t.to(self.device) for t in structure]
        inputs = (padded.to(self.device), *structure)
        return lambda: inputs, labels

    def _loss(self, model: nn.Module, prepared: tuple[Callable[[], tuple], Tensor]) -> Tensor:
        inputs, labels = prepared
        return nn.functional.cross_entropy(model(*inputs()), labels)

    def _step(self, prepared: tuple[Callable[[], tuple], Tensor]) -> None:
        self.optimizer.zero_grad()
        self._loss(self.model, prepared).backward()
        self.optimizer.step()

    def train(self) -> None:
        for prepared in self.batches:
            self._step(prepared)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def answer(self) -> list[np.ndarray]:
        """Loss and gradients, by name, for the few functions, at the first state."""
        model = self._model()
        loss = self._loss(model, self._prepared(_batch(*self.few)))
        loss.backward()
        return [t.detach().cpu().numpy() for t in (loss, *(p.grad for _, p in sorted(model.named_parameters())))]

    def _memory(self) -> tuple[float, float]:
        """Now and at the peak, in MB."""
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated() / 2**20, torch.cuda.max_memory_allocated() / 2**20
        return self.twins.memory_now_and_peak()

    def memory(self) -> float:
        return self._memory()[1] - self.before


class Process:
    """A `Form` elsewhere: `ask` calls a method of it by name."""

    def __init__(self, *job):
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far, *job), daemon=True)
        self.process.start()
        far.close()

    def ask(self, method: str):
        self.pipe.send(method)
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self) -> Run:
        """Training is timed; the answer that is checked is that for the few functions."""
        return Run(lambda: self.ask("train"), lambda _: tuple(map(torch.from_numpy, self.ask("answer"))))

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def _serve(pipe, *job) -> None:
    form = None
    with suppress(EOFError):  # the asker is gone
        while True:
            method = pipe.recv()
            try:
                form = form or Form(*job)
                pipe.send(getattr(form, method)())
            except Exception as failure:  # the asker reports it
                pipe.send(RuntimeError(f"{type(failure).__name__}: {failure}"))
