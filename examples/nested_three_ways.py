# SPDX-License-Identifier: Apache-2.0
"""One nested RNN, word > sentence > article, written in three ways that compute the same numbers.

    python examples/nested_three_ways.py

Modules is the way to write it where an LSTM is all that is needed: kernels run whole layers. `tl.scan` and
`tl.nn.DynamicRNN` take any cell, at any level; the RNN over words there runs inside the step of the RNN over
sentences, which receives the t-th sentence of every article that has one.
"""

import time

import torch
from running import add_machine, compute_on, new_parser
from torch import nn

import torch_lod as tl

WORDS, EMBEDDING, HIDDEN, CLASSES = 1000, 32, 48, 3
ARTICLES = 32


class Modules(nn.Module):
    """The layers of torch_lod: words to sentences, sentences to articles."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, EMBEDDING)
        self.words = tl.nn.LSTM(EMBEDDING, HIDDEN)
        self.sentences = tl.nn.LSTM(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, articles: tl.LoDTensor) -> torch.Tensor:
        words, _ = self.words(self.embed(articles))
        sentences, _ = self.sentences(tl.sequence_pool(words, "last"))
        return self.out(tl.sequence_pool(sentences, "last"))


class Scan(nn.Module):
    """Two cells, and the loops written as functions of one step."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, EMBEDDING)
        self.word, self.sentence = nn.LSTMCell(EMBEDDING, HIDDEN), nn.LSTMCell(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, articles: tl.LoDTensor) -> torch.Tensor:
        def read_sentence(words: tl.LoDTensor, state):
            start = words.values().new_zeros(words.num_sequences(), HIDDEN)
            _, (h, _) = tl.scan(self.word, words, (start, start))
            return self.sentence(h, state)

        start = self.out.weight.new_zeros(articles.num_sequences(0), HIDDEN)
        _, (h, _) = tl.scan(read_sentence, self.embed(articles), (start, start), level=0)
        return self.out(h)


class ReadSentence(nn.Module):
    """The step of the outer recurrence: an RNN over the words, then one step over the sentence that it read."""

    def __init__(self):
        super().__init__()
        self.words = tl.nn.DynamicRNN(nn.LSTMCell(EMBEDDING, HIDDEN))
        self.sentence = nn.LSTMCell(HIDDEN, HIDDEN)

    def forward(self, words: tl.LoDTensor, state):
        _, (h, _) = self.words(words)
        return self.sentence(h, state)


class Dynamic(nn.Module):
    """DynamicRNN, as in Paddle: a module with a step inside, nested."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, EMBEDDING)
        self.articles = tl.nn.DynamicRNN(ReadSentence(), level=0)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, articles: tl.LoDTensor) -> torch.Tensor:
        start = self.out.weight.new_zeros(articles.num_sequences(0), HIDDEN)
        _, (h, _) = self.articles(self.embed(articles), (start, start))
        return self.out(h)


def same_parameters(modules: Modules, scan: Scan, dynamic: Dynamic) -> None:
    """The parameters of the layers, for the cells."""
    for layer, cells in (
        (modules.words, (scan.word, dynamic.articles.cell.words.cell)),
        (modules.sentences, (scan.sentence, dynamic.articles.cell.sentence)),
    ):
        for cell in cells:
            cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    for model in (scan, dynamic):
        model.embed.load_state_dict(modules.embed.state_dict())
        model.out.load_state_dict(modules.out.state_dict())


def batch(articles: int) -> tuple[tl.LoDTensor, torch.Tensor]:
    """1 to 8 sentences an article, 1 to 20 words a sentence."""
    sentences = torch.randint(1, 9, (articles,))
    words = torch.randint(1, 21, (int(sentences.sum()),))
    numbers = torch.randint(0, WORDS, (int(words.sum()),))
    x = tl.from_lengths(numbers, [sentences, words], level_names=("article", "sentence"))
    return x, torch.randint(0, CLASSES, (articles,))


def main() -> None:
    torch.manual_seed(0)
    modules, scan, dynamic = Modules(), Scan(), Dynamic()
    same_parameters(modules, scan, dynamic)
    models: dict[str, Modules | Scan | Dynamic] = {"modules": modules, "scan": scan, "DynamicRNN": dynamic}
    x, labels = batch(ARTICLES)
    print(f"{ARTICLES} articles, {x.num_sequences(1)} sentences, {len(x)} words, nothing padded")
    print(f"{'':12s}{'loss':>10s}{'logits differ by':>20s}{'gradients by':>16s}{'seconds':>10s}")
    first = None
    for name, model in models.items():
        started = time.perf_counter()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        seconds, gradient = time.perf_counter() - started, model.embed.weight.grad
        assert gradient is not None
        first = first or (logits.detach(), gradient)
        apart = [float((a - b).detach().abs().max()) for a, b in zip((logits, gradient), first)]
        print(f"{name:12s}{loss.item():10.4f}{apart[0]:20.1e}{apart[1]:16.1e}{seconds:10.3f}")


if __name__ == "__main__":
    parser = new_parser(__doc__)
    add_machine(parser.add_argument)
    compute_on(parser.parse_args())
    main()
