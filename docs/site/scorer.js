// SPDX-License-Identifier: Apache-2.0
// Guides before pages of functions, those before pages for builders, and measurements last.
const WEIGHTS = [
  [/^docs\/(tutorial\/|concepts|cheat_sheet)/, 1.2],
  [/^docs\/(operators\/|reference|torch_functions|matrix|messages|design|gpu_kernels|numerics|own_operator|releasing)/, 0.5],
  [/^(benchmarks|tests|examples)\/|^(CHANGELOG|CONTRIBUTING)/, 0.1],
  [/^docs\//, 2],
  [/^functions\//, 1],
];
var Scorer = {
  score: ([page, title, anchor, descr, score]) => score * (WEIGHTS.find(([name]) => name.test(page)) ?? [0, 1])[1],
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
