# SPDX-License-Identifier: Apache-2.0
"""The nested RNN without LoDTensors: speed and memory of the two usual forms.

`PaddedTwin` pads a batch to (functions, lines, tokens) and runs the RNN over every cell;
`PackedTwin` hands torch a PackedSequence at both levels. Both have the parameters of `NestedRNN`,
by the same names, and compute the same numbers. `compare` trains each form on the same batches in
a process of its own, so that the memory of one is not counted for another.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from running import InputError
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_sequence
from training import Settings

if TYPE_CHECKING:
    import torch_lod as tl

FORMS = {"lod": "LoDTensor", "packed": "PackedSequence", "padded": "padded"}
WARM_UP = 2  # steps that are not timed
TOLERANCE = 1e-4


class PaddedTwin(nn.Module):
    """Batch: token numbers (functions, lines, tokens), lengths (functions, lines), line counts."""

    def __init__(self, s: Settings, tokens: int, classes: int):
        super().__init__()
        rnn = nn.GRU if s.model == "nested-gru" else nn.LSTM
        self.embed = nn.Embedding(tokens, s.embedding)
        self.words = rnn(s.embedding, s.hidden, batch_first=True)
        self.lines = rnn(s.hidden, s.hidden, batch_first=True)
        self.out = nn.Linear(s.hidden, classes)
        self.dropout = nn.Dropout(s.dropout)

    @staticmethod
    def last(y: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """The step before the padding begins, (n, steps, units) -> (n, units); 0 if there is none."""
        states = y[torch.arange(len(y)), (lengths - 1).clamp(min=0)]
        return states * (lengths > 0).unsqueeze(1)

    def forward(self, tokens, lengths, counts):
        x = self.dropout(self.embed(tokens.flatten(0, 1)))
        y, _ = self.words(x)
        lines = self.dropout(self.last(y, lengths.flatten())).unflatten(0, lengths.shape)
        y, _ = self.lines(lines)
        return self.out(self.dropout(self.last(y, counts)))


class PackedTwin(PaddedTwin):
    """The same batch; cells that are padding are dropped before anything is computed."""

    def forward(self, tokens, lengths, counts):
        real = lengths.flatten() > 0  # pack_padded_sequence takes no empty sequences
        packed = pack_padded_sequence(
            tokens.flatten(0, 1)[real], lengths.flatten()[real], batch_first=True, enforce_sorted=False
        )
        x = PackedSequence(self.dropout(self.embed(packed.data)), *packed[1:])
        states = self.final_state(self.words(x))
        lines = states.new_zeros(real.numel(), states.shape[1])
        lines = lines.masked_scatter(real.unsqueeze(1), self.dropout(states)).unflatten(0, lengths.shape)
        packed = pack_padded_sequence(lines, counts, batch_first=True, enforce_sorted=False)
        return self.out(self.dropout(self.final_state(self.lines(packed))))

    @staticmethod
    def final_state(result) -> torch.Tensor:
        _, state = result
        return (state[0] if isinstance(state, tuple) else state)[-1]


def padded_batch(x: tl.LoDTensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A LoDTensor of two levels as the batch of the twins."""
    counts, lengths = x.lod.lengths(0), x.lod.lengths(1)
    lines = pad_sequence(list(x.values().split(lengths.tolist())), batch_first=True)
    tokens = pad_sequence(list(lines.split(counts.tolist())), batch_first=True)
    lengths = pad_sequence(list(lengths.split(counts.tolist())), batch_first=True)
    return tokens, lengths, counts


# ---- one form, in its own process --------------------------------------------------------------


def memory_now_and_peak() -> tuple[float, float]:
    """Resident memory of this process in MB.

    Linux hands ru_maxrss down from the parent process, whose memory is not ours to count;
    /proc starts at zero. Elsewhere the peak so far stands for both.
    """
    status = Path("/proc/self/status")
    if status.exists():
        entries = dict(line.split(":", 1) for line in status.read_text().splitlines())
        now, peak = (int(entries[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
        return now, peak
    unit = 2**20 if sys.platform == "darwin" else 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return peak, peak


def train_steps(model: nn.Module, batches: list[tuple]) -> dict:
    """Seconds after the warm-up, and the memory that the steps took on top of what was there."""
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    before, _ = memory_now_and_peak()
    started = time.perf_counter()
    for step, (inputs, labels) in enumerate(batches):
        if step == WARM_UP:
            started = time.perf_counter()
        loss = nn.functional.cross_entropy(model(*inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "extra_megabytes": memory_now_and_peak()[1] - before}


def run_form(form: str, work: Path, threads: int) -> None:
    """Entry point of the subprocess: prints its measurements as JSON."""
    torch.set_num_threads(threads)
    job = torch.load(work / "job.pt", weights_only=True)
    model = make_form(form, Settings(**job["settings"]), job["state"])
    batches = []
    for values, lengths, labels in job["batches"]:
        batches.append((form_inputs(form, values, lengths), labels))
    print(json.dumps(train_steps(model, batches)))


def make_form(form: str, s: Settings, state: dict) -> nn.Module:
    sizes = (s, state["embed.weight"].shape[0], state["out.bias"].shape[0])
    if form == "lod":
        from train_nested_rnn import MODELS  # here, since that file imports this one

        model = MODELS[s.model](*sizes)
    else:
        model = {"packed": PackedTwin, "padded": PaddedTwin}[form](*sizes)
    model.load_state_dict(state)
    return model


def form_inputs(form: str, values: torch.Tensor, lengths: list[torch.Tensor]) -> tuple:
    import torch_lod as tl

    x = tl.from_lengths(values, lengths, level_names=("function", "line"))
    return (x,) if form == "lod" else padded_batch(x)


# ---- all forms ---------------------------------------------------------------------------------


@torch.no_grad()
def largest_difference(s: Settings, state: dict, values, lengths) -> float:
    """Between the scores that the three forms give one batch."""
    scores = []
    for form in FORMS:
        model = make_form(form, s, state).eval()
        scores.append(model(*form_inputs(form, values, lengths)))
    return max((score - scores[0]).abs().max().item() for score in scores)


def compare(s: Settings, model: nn.Module, batches: list[tuple], threads: int) -> dict:
    """Print the table of the three forms, and return what it says."""
    rows = [(x.values(), [x.lod.lengths(0), x.lod.lengths(1)], labels) for x, labels in batches]
    if len(rows) <= WARM_UP:
        raise InputError(f"--compare-padded needs more than {WARM_UP} batches, there are {len(rows)}")
    state = model.state_dict()
    difference = largest_difference(s, state, *rows[0][:2])
    if not difference <= TOLERANCE:
        raise InputError(f"the forms differ by {difference:.1e}, more than {TOLERANCE}: nothing to compare")
    print(f"{len(rows)} steps of {s.model}, {threads} thread(s); the scores agree to {difference:.1e}")

    timed = rows[WARM_UP:]
    tokens = sum(len(values) for values, _, _ in timed)
    cells = sum(len(n) * int(n.max()) * int(m.max()) for _, (n, m), _ in timed)
    print(f"{tokens} tokens; padded to the longest of each batch: {cells / tokens:.1f} cells per token")
    with tempfile.TemporaryDirectory() as work:
        torch.save({"settings": asdict(s), "state": state, "batches": rows}, Path(work, "job.pt"))
        results = {form: measure(form, work, threads) for form in FORMS}

    print(f"{'form':<16}{'tokens/s':>10}{'LoDTensor is':>16}{'extra memory':>16}{'LoDTensor takes':>18}")
    ours = results["lod"]
    for form, name in FORMS.items():
        theirs = results[form]
        if "failure" in theirs:
            print(f"{name:<16}{theirs['failure']}")
            continue
        theirs["tokens_per_second"] = tokens / theirs["seconds"]
        line = f"{name:<16}{theirs['tokens_per_second']:>10,.0f}"
        faster = f"{theirs['seconds'] / ours['seconds']:.1f}x as fast"
        share = f"{ours['extra_megabytes'] / max(theirs['extra_megabytes'], 1e-9):.2f} of it"
        if form == "lod":
            faster = share = ""
        print(f"{line}{faster:>16}{theirs['extra_megabytes']:>13,.0f} MB{share:>18}")
    return results


def measure(form: str, work: str, threads: int) -> dict:
    command = [sys.executable, __file__, form, work, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last_words = (done.stderr.strip().splitlines() or ["out of memory?"])[-1]
        return {"failure": f"ended with {done.returncode}: {last_words}"}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    run_form(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
