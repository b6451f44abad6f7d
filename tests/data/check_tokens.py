# SPDX-License-Identifier: Apache-2.0
"""tl.integrations.transformers with tokenizers, and tl.data with datasets: `make formats`. Nothing is downloaded."""

import pathlib
import re

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
import tokenizers
import torch
import transformers as hf
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

import torch_lod as tl

hf.logging.set_verbosity_error()
datasets.disable_progress_bars()
OURS = tl.integrations.transformers
TEXTS = ["unhappy birds sing.", "A bird sang", "", "birds"]
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def trained(model, trainer, pre_tokenizer, decorated):
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    if decorated:
        ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
        )
    return tokenizer


def raw(kind="wordpiece", decorated=True):
    if kind == "word":
        return trained(
            models.WordLevel(unk_token="[UNK]"),
            trainers.WordLevelTrainer(special_tokens=SPECIAL),
            pre_tokenizers.Whitespace(),
            decorated,
        )
    if kind == "bpe":
        trainer = trainers.BpeTrainer(special_tokens=SPECIAL, vocab_size=22)
        return trained(models.BPE(unk_token="[UNK]"), trainer, pre_tokenizers.Whitespace(), decorated)
    trainer = trainers.WordPieceTrainer(special_tokens=SPECIAL, vocab_size=36)
    return trained(models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.Whitespace(), decorated)


def fast(kind="wordpiece", decorated=True):
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=raw(kind, decorated),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


@pytest.mark.parametrize("decorated", [True, False])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "word"])
@pytest.mark.parametrize("padding", [False, True])
def test_words_of_texts(kind, decorated, padding):
    tokenizer = fast(kind, decorated)
    encoding = tokenizer(TEXTS, padding=padding)
    found = OURS.from_encoding(encoding)
    plain = [tokenizer(text)["input_ids"] for text in TEXTS]
    assert found.input_ids.level_names == ("text", "word") and found.input_ids.drop_level("word").to_list() == plain
    assert len({id(field.lod) for field in found}) == 1 and all(field.dtype == torch.int64 for field in found)
    words = [["unhappy", "birds", "sing", "."], ["a", "bird", "sang"], [], ["birds"]]
    for i, text in enumerate(TEXTS):
        spans = [word for word in found.offsets.seq[i].sequences() if len(word) > 1 or word[0, 1] > 0]
        assert [text[word[0, 0] : word[-1, 1]].lower() for word in spans] == words[i]
        numbers = [n for n in found.word_ids.slice(0, i).values().tolist() if n >= 0]
        assert sorted(set(numbers)) == list(range(len(words[i]))) and numbers == sorted(numbers)
        assert found.input_ids.lengths(0)[i] == len(words[i]) + 2 * decorated
    if kind != "word":
        assert found.input_ids.max_length() > 1
    without = OURS.from_encoding(encoding, words=False)
    assert without.input_ids.to_list() == plain and without.input_ids.level_names == ("text",)


def test_documents_and_their_sentences():
    tokenizer = fast()
    found = OURS.from_encoding(tokenizer(TEXTS), lengths=[[2, 0, 2]])
    assert found.input_ids.level_names == (None, "text", "word") and found.input_ids.lengths(0).tolist() == [2, 0, 2]
    assert found.input_ids.drop_level(0).to_list() == OURS.from_encoding(tokenizer(TEXTS)).input_ids.to_list()
    text = "unhappy birds. a bird sang"
    spans = [[(0, 14), (15, 15), (15, len(text))], [(0, 0)]]
    parts = OURS.from_encoding(tokenizer([text, ""]), spans=spans)
    assert parts.input_ids.level_names == ("text", "span", "word")
    assert parts.input_ids.lengths("text").tolist() == [3, 1]
    assert parts.input_ids.lengths("span").tolist() == [
        4,
        0,
        4,
        2,
    ]  # [CLS] unhappy birds . | | a bird sang [SEP]
    names = OURS.from_encoding(tokenizer([text]), spans=spans[:1], words=False, level_names=["a", "b"])
    assert names.input_ids.level_names == ("a", "b") and names.input_ids.drop_level("b").to_list() == [
        tokenizer(text)["input_ids"]
    ]


def test_a_character_of_several_words_is_no_restart_of_offsets():
    tokenizer = raw()
    tokenizer.normalizer = normalizers.NFKC()
    text = "\u00bd bird \u00bd"  # one half is three words
    found = OURS.from_encoding(tokenizer.encode_batch([text]), spans=[[(0, 2), (2, 6), (7, 8)]])
    words = tl.sequence_pool(found.word_ids, "last", level="word")
    assert words.to_list() == [[[-1, 0, 1, 2], [3], [4, 5, 6, -1]]]


def test_encodings_of_the_library_of_tokenizers_itself():
    tokenizer = raw()
    found = OURS.from_encoding(tokenizer.encode_batch(TEXTS))
    encoding = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer)(TEXTS)
    for field, expected in zip(found, OURS.from_encoding(encoding)):
        assert field.lod == expected.lod and torch.equal(field.values(), expected.values())


def test_texts_given_as_words_and_pairs():
    tokenizer = fast()
    words = [["unhappy", "birds"], ["Sing"]]
    found = OURS.from_encoding(tokenizer(words, is_split_into_words=True))
    assert found.input_ids.lengths("text").tolist() == [4, 3]
    pair = OURS.from_encoding(tokenizer(["birds"], ["birds sing"]))
    assert pair.input_ids.lengths("text").tolist() == [6] and pair.token_type_ids.values().max() == 1
    numbers = pair.word_ids.values().tolist()
    assert numbers[:3] == [-1, 0, -1] and sorted(set(numbers[3:])) == [-1, 1, 2]
    labels = OURS.labels_of_tokens([[7, 8, 9]], pair, all_tokens=True, ignore_index=6)
    assert labels.values().tolist() == [n + 7 for n in numbers]


def test_labels_of_words_reach_their_tokens():
    tokenizer = fast()
    words = [["unhappy", "birds"], [], ["sang", "a", "bird"]]
    labels = [[7, 8], [], [1, 2, 3]]
    tokens = OURS.from_encoding(tokenizer(words, is_split_into_words=True))
    first = OURS.labels_of_tokens(labels, tokens)
    every = OURS.labels_of_tokens(tl.lod_tensor(labels), tokens, all_tokens=True, ignore_index=-1)
    assert first.lod is tokens.input_ids.lod and first.dtype == torch.int64
    encoding = tokenizer(words, is_split_into_words=True)
    for i in range(3):
        numbers, before = encoding.word_ids(i), None
        expected = []
        for n in numbers:
            expected.append(-100 if n is None or n == before else labels[i][n])
            before = n
        assert first.slice(0, i).values().tolist() == expected
        assert every.slice(0, i).values().tolist() == [-1 if n is None else labels[i][n] for n in numbers]
    assert (first.values() == -100).sum() > (every.values() == -1).sum()
    cut = OURS.from_encoding(tokenizer(words, is_split_into_words=True, truncation=True, max_length=4))
    with pytest.raises(
        ValueError, match=r"expected a label for each of 1 words of text 0, got 2; if its end was cut, pass trunc"
    ):
        OURS.labels_of_tokens(labels, cut)
    assert OURS.labels_of_tokens(labels, cut, truncated=True).values().max() <= 8


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("how", "length"),
    [("only_first", 7), ("only_first", 8), ("only_second", 8), *[("longest_first", n) for n in range(4, 9)]],
)
def test_labels_of_pairs_that_were_cut_stay_with_their_words(how, side, length):
    tokenizer = fast("word")
    tokenizer.truncation_side = side
    first, second = ["unhappy", "birds", "sing", "a"], ["sang", "bird", "a"]
    cut = tokenizer([first], [second], is_split_into_words=True, truncation=how, max_length=length)
    tokens = OURS.from_encoding(cut)
    found = OURS.labels_of_tokens([list(range(7))], tokens, truncated=True).values().tolist()
    places = zip(cut.word_ids(0), cut.sequence_ids(0), strict=True)
    assert found == [-100 if n is None else n + len(first) * part for n, part in places]


def test_tokens_train_a_tagger_whose_words_are_pooled():
    tokenizer = fast()
    config = hf.BertConfig(**TINY, vocab_size=len(tokenizer))
    torch.manual_seed(0)
    model = OURS.use(hf.BertForTokenClassification(config).eval(), level="text")
    tokens = OURS.from_encoding(tokenizer(TEXTS))
    found = model(
        tokens.input_ids,
        token_type_ids=tokens.token_type_ids,
        labels=OURS.labels_of_tokens([[0, 1, 0, 1], [1, 1, 1], [], [0]], tokens),
    )
    assert found.loss.isfinite() and found.logits.lod == tokens.input_ids.lod
    words = tl.sequence_pool(found.logits, "mean", level="word")
    assert words.lod.to_lengths() == [[6, 5, 2, 3]]
    alone = model(OURS.from_encoding(tokenizer(TEXTS[1:2])).input_ids).logits.values()
    torch.testing.assert_close(found.logits.slice("text", 1).values(), alone)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (
            lambda: OURS.from_encoding(hf.ByT5Tokenizer()(TEXTS)),
            TypeError,
            "expected the encodings of a fast tokenizer",
        ),
        (
            lambda: OURS.from_encoding([[1, 2]]),
            TypeError,
            "expected a list of tokenizers.Encoding, got list at index 0",
        ),
        (lambda: OURS.from_encoding({"ids": [1]}), TypeError, "expected encoding as a BatchEncoding or a list"),
        (lambda: OURS.from_encoding(fast()(TEXTS), words=1), TypeError, "expected words as a bool"),
        (
            lambda: OURS.from_encoding(fast()(TEXTS), lengths=[[3]]),
            ValueError,
            "expected lengths[0] to add up to the 4",
        ),
        (
            lambda: OURS.from_encoding(fast()(TEXTS), spans=[[(0, 1)]]),
            ValueError,
            "expected spans as a list for each of 4 texts",
        ),
        (
            lambda: OURS.from_encoding(fast()(["a b"]), spans=[[(2, 3), (0, 1)]]),
            ValueError,
            "expected spans[0] in order",
        ),
        (lambda: OURS.from_encoding(fast()(["a b"]), spans=[[]]), ValueError, "expected at least 1 span in spans[0]"),
        (
            lambda: OURS.from_encoding(fast()(["a b"]), spans=[[(0, "b")]]),
            ValueError,
            "expected spans[0] as pairs of integers",
        ),
        (
            lambda: OURS.from_encoding(fast()(["a"], ["b"]), spans=[[(0, 1)]]),
            ValueError,
            "expected single texts for spans, got a pair at index 0",
        ),
        *(
            (
                lambda words=words: OURS.from_encoding(
                    fast()([["a"], words], is_split_into_words=True), spans=[[(0, 1)], [(0, 1), (2, 9)]]
                ),
                ValueError,
                "expected texts for spans, got a list of words at index 1",
            )
            for words in (["a", "birds"], ["birds", "a"], ["a", "b"], ["unhappy", "unhappy"], ["a", "unhappy", " a"])
        ),
        (
            lambda: OURS.from_encoding(
                fast()(["a bird sang"], max_length=3, truncation=True, return_overflowing_tokens=True)
            ),
            ValueError,
            "expected a text as one encoding, got pieces",
        ),
        (lambda: OURS.labels_of_tokens([[1]], None), TypeError, "expected tokens of from_encoding"),
        (
            lambda: OURS.labels_of_tokens([[1.5], [1]], OURS.from_encoding(fast()(["a", "a"]))),
            TypeError,
            "expected labels as integers",
        ),
        (
            lambda: OURS.labels_of_tokens([[1]], OURS.from_encoding(fast()(["a", "a"]))),
            ValueError,
            "expected labels for 2 texts",
        ),
        (
            lambda: OURS.labels_of_tokens([[1], []], OURS.from_encoding(fast()(["a", "a"]))),
            ValueError,
            "each of 1 words of text 1, got 0",
        ),
        (
            lambda: OURS.labels_of_tokens([1, 2], OURS.from_encoding(fast()(["a", "a"]))),
            TypeError,
            "expected labels as a list",
        ),
    ],
)
def test_encodings_that_do_not_fit_are_refused(call, kind, said):
    with pytest.raises(kind) as raised:
        call()
    assert isinstance(raised.value, tl.LoDError) and said in str(raised.value), raised.value


# -- datasets

NESTED = [[[1, 2], []], [], [[3], [4, 5, 6]]]


def test_datasets_in_and_out():
    x = tl.lod_tensor(NESTED)
    made = datasets.Dataset.from_dict({"x": NESTED, "y": [0, 1, 2]})
    for column in (made.data.column("x"), made.with_format("arrow")[:]["x"]):
        found = tl.data.from_arrow(column)
        assert found.lod == x.lod and torch.equal(found.values(), x.values())
    chosen = made.select([2, 0])
    assert tl.data.from_arrow(chosen.with_format("arrow")[:]["x"]).to_list() == [NESTED[2], NESTED[0]]
    joined = datasets.concatenate_datasets([made, chosen.flatten_indices()])
    assert tl.data.from_arrow(joined.data.column("x")).to_list() == [*NESTED, NESTED[2], NESTED[0]]
    out = datasets.Dataset(pa.table({"x": tl.data.to_arrow(x), "y": pa.array([0, 1, 2])}))
    assert out["x"][:] == NESTED and out[2] == {"x": NESTED[2], "y": 2}
    loader = torch.utils.data.DataLoader(made, batch_size=3, collate_fn=tl.data.collate)
    batch = next(iter(loader))
    assert batch["x"].lod == x.lod and batch["y"].tolist() == [0, 1, 2]


def numbered(batch, tokenizer):
    return {"ids": [[tokenizer.encode(s).ids for s in text.split(".")] for text in batch["text"]]}


@pytest.mark.parametrize("processes", [1, 2])
def test_preprocessing_in_processes_to_parquet_to_a_dataset(processes, tmp_path):
    texts = [f"{TEXTS[i % 4]} {TEXTS[i % 3]}" for i in range(40)]
    tokenizer = raw()
    made = datasets.Dataset.from_dict({"text": texts, "label": list(range(40))})
    mapped = made.map(
        numbered,
        batched=True,
        batch_size=5,
        num_proc=processes,
        fn_kwargs={"tokenizer": tokenizer},
        remove_columns=["text"],
    )
    assert len(mapped) == 40
    for i in range(2):  # a file for each machine
        mapped.shard(2, i, contiguous=True).to_parquet(str(tmp_path / f"{i}.parquet"))
    table = pa.parquet.read_table(str(tmp_path))
    words = tl.data.from_arrow(table["ids"], level_names=("text", "sentence"))
    dataset = tl.data.LoDDataset({"ids": words, "label": torch.from_numpy(table["label"].to_numpy())})
    sampler = tl.data.TokenBudgetSampler(words, budget=60)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate)
    seen = {}
    for batch in loader:
        assert len(batch["ids"]) <= 60
        seen |= dict(zip(batch["label"].tolist(), batch["ids"].to_list()))
    assert seen == dict(enumerate(numbered({"text": texts}, tokenizer)["ids"]))


def test_the_library_trains_on_what_it_preprocessed(tmp_path):
    tokenizer = fast(decorated=False)
    made = datasets.Dataset.from_dict({"text": TEXTS * 4}).filter(
        lambda row: len(row["text"]) > 3, new_fingerprint="long"
    )
    encoded = made.map(lambda row: tokenizer(row["text"]), remove_columns=["text"], new_fingerprint="ids")
    torch.manual_seed(0)
    config = hf.LlamaConfig(**TINY, vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0)
    model = OURS.use(hf.LlamaForCausalLM(config))
    arguments = hf.TrainingArguments(
        str(tmp_path), report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", learning_rate=0.01
    )
    trainer = hf.Trainer(model, arguments, OURS.Collator(model, ids_are_labels=True), encoded)
    assert trainer.train().training_loss < 3.5


def test_the_page_prints_what_it_says(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "transformers.md").read_text()
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, re.S)
    checked = 0
    for (kind, code), (following, text) in zip(blocks, [*blocks[1:], ("", "")]):
        if kind == "python":
            capsys.readouterr()
            exec(compile(code, "docs/transformers.md", "exec"), {})
            printed = capsys.readouterr().out
            if following == "text":
                assert printed == text
                checked += 1
            else:
                assert printed.endswith("\n6\n")
    assert checked == 7
