# SPDX-License-Identifier: Apache-2.0
"""tl.integrations.transformers with the Trainer of that library: `make formats`. Models have random weights."""

import pickle

import pytest
import torch
import transformers as hf
from check_transformers import NEW, OURS, SMALL, ids, model_of, refused, used

import torch_lod as tl

# -- the Trainer


def trained(model, samples, tmp_path, evaluated=None, **options):
    given = {
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "weight_decay": 0.0,
    }
    given |= {"num_train_epochs": 1, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = hf.TrainingArguments(str(tmp_path), **{**given, **options})
    collator = OURS.Collator(model, ids_are_labels=True)
    trainer = hf.Trainer(model, arguments, collator, samples, evaluated)
    trainer.train()
    return trainer


def samples_of(x):
    return [{"input_ids": rows.tolist()} for rows in x.sequences(-1) if len(rows) > 1]


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_the_trainer_takes_the_mean_over_all_tokens(name, tmp_path):
    still = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0} if "GPT2" in name else {}
    samples, reference, model = samples_of(ids()), model_of(name, **still), OURS.use(model_of(name, **still))
    trained(
        model,
        samples,
        tmp_path,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=len(samples),
        dataloader_num_workers=1,
    )
    losses = [(len(s["input_ids"]) - 1, torch.tensor([s["input_ids"]])) for s in samples]
    loss = sum(count * reference(rows, labels=rows).loss for count, rows in losses) / sum(count for count, _ in losses)
    loss.backward()
    for (key, value), other in zip(model.named_parameters(), reference.parameters()):
        moved = other - 0.5 * other.grad
        torch.testing.assert_close(value, moved, rtol=1e-6, atol=1e-7, msg=lambda said, key=key: f"{key}: {said}")


def test_the_trainer_evaluates_predicts_and_saves(tmp_path):
    samples, model = samples_of(ids()), used("LlamaForCausalLM")
    trainer = trained(model, samples, tmp_path / "a", samples, per_device_eval_batch_size=1)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    found = trainer.predict(samples)  # with batches of other sizes, the library cuts the last
    assert found.predictions.shape == (sum(len(s["input_ids"]) for s in samples), SMALL["vocab_size"])
    trainer.save_model(str(tmp_path / "b"))
    again = OURS.use(hf.LlamaForCausalLM.from_pretrained(str(tmp_path / "b"), dtype=torch.float64))
    assert torch.equal(again.eval()(ids()).logits.values(), model.eval()(ids()).logits.values())


@pytest.mark.skipif(not NEW, reason="an encoder")
def test_the_trainer_with_labels_of_tokens_and_of_samples(tmp_path):
    x = ids()
    tagged = [{**s, "labels": [i % 2 for i in s["input_ids"]]} for s in samples_of(x)]
    trainer = trained(used("BertForTokenClassification"), tagged, tmp_path, tagged)
    assert trainer.evaluate()["eval_loss"] < 10
    classified = [{**s, "label": len(s["input_ids"]) % 3} for s in samples_of(x)]
    model = used("BertForSequenceClassification")
    trainer = trained(model, classified, tmp_path, classified, num_train_epochs=3)
    assert trainer.predict(classified).predictions.shape == (len(classified), 3)


# -- the collator


def test_collators_make_lod_tensors():
    model = used("GPT2LMHeadModel")
    collate = OURS.Collator(model)
    samples = [
        {"input_ids": [3, 4, 5, 0], "attention_mask": [1, 1, 1, 0], "labels": [3, 4, 5, -100]},
        {"input_ids": torch.tensor([6, 7]), "attention_mask": torch.tensor([1, 1]), "labels": torch.tensor([6, 7])},
    ]
    with pytest.raises(tl.LoDError, match="kind"):
        collate(samples)
    samples[1] = {name: value.tolist() for name, value in samples[1].items()}
    found = pickle.loads(pickle.dumps(collate))(samples)
    assert found.keys() == {"input_ids", "labels"} and found["input_ids"].to_list() == [[3, 4, 5], [6, 7]]
    assert found["labels"].to_list() == [[-100, 4, 5], [-100, 7]]
    assert torch.isfinite(model(**found).loss)
    copied = OURS.Collator(model, ids_are_labels=True)([{"input_ids": [[3, 4], [5]]}, {"input_ids": [[6]]}])
    assert copied["labels"].to_list() == [[[-100, 4], [-100]], [[-100]]] and copied["input_ids"].to_list()[0] == [
        [3, 4],
        [5],
    ]
    wrapped = torch.nn.Sequential(model)
    assert OURS.Collator(wrapped)(samples)["labels"].to_list() == found["labels"].to_list()


def test_collators_refuse():
    model = used("GPT2LMHeadModel")
    collate = OURS.Collator(model)
    refused(
        lambda: OURS.Collator(model_of("GPT2LMHeadModel")), "expected a model that tl.integrations.transformers.use"
    )
    refused(lambda: OURS.Collator(None), "expected a model that")
    refused(lambda: OURS.Collator(model, ids_are_labels=1), "expected ids_are_labels as a bool")
    refused(lambda: collate([]), "expected samples as a list of at least 1 dict")
    refused(lambda: collate([{"input_ids": [1]}, {"ids": [1]}]), "expected samples as dicts with input_ids", "index 1")
    refused(lambda: collate([{"input_ids": 1}]), "expected input_ids with rows in every sample")
    refused(
        lambda: collate([{"input_ids": [1, 2], "labels": [1]}]), "expected labels with as many rows", "lengths 2 and 1"
    )
