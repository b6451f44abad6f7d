# SPDX-License-Identifier: Apache-2.0
"""The tables: one entry per operator. A new operator adds one, and every law of test_laws*.py holds for it or is red."""

from samples import ops, sequence

OPS, SEQUENCES, METHODS = ops.ENTRIES, sequence.ENTRIES, sequence.METHODS
#: Operators without an entry, and why.
WITHOUT = {
    "attention_composed": "the reference of gradients of gradients: gradgradcheck of attention runs it",
    "chain_logsumexp_composed": "the reference of gradients of gradients: gradgradcheck of chain_logsumexp runs it",
    "chain_marginals_composed": "the reference of gradients of gradients: gradgradcheck of chain_marginals runs it",
    "check_errors": "returns nothing; tests/emulated_gpu/check_device.py",
    "check_lod": "returns no tensor; tests/sequence/test_lod.py",
    "keep_structure": "returns nothing; tests/robustness/test_gate.py",
    "watch_structure": "returns nothing; tests/robustness/test_gate.py and tests/emulated_gpu/check_device.py",
    "rank_by_length": "a question about structure; tests/sequence/test_plan.py",
    "take_runs": "structure; tests/sequence/test_lod.py",
    "cut_lod": "structure; tests/sequence/test_lod.py",
    "join_lods": "structure; tests/sequence/test_lod.py",
    "locate": "structure; tests/sequence/test_gather.py",
    "ctc_loss_composed": "the reference of gradients of gradients: gradgradcheck of ctc_loss runs it",
    "lstm_composed": "the reference of gradients of gradients: gradgradcheck of lstm runs it",
    "gru_composed": "the reference of gradients of gradients: gradgradcheck of gru runs it",
    "matrix_scan_composed": "the reference of gradients of gradients: gradgradcheck of matrix_scan runs it",
    "rnn_composed": "the reference of gradients of gradients: gradgradcheck of rnn runs it",
}
