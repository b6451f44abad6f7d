# SPDX-License-Identifier: Apache-2.0
"""An example per operator, from which docs/operators is drawn: Python that starts from `x` and calls the operator, once or
more, with variables as arguments. All that it assigns is shown; the facts below it are found by calling once more, with the
arguments in other dtypes and with other batches as `x`."""

#: Two articles of two sentences, one of them empty.
X = """x = tl.from_lengths(
    torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]),
    [[2, 2], [3, 1, 0, 2]],
    level_names=("article", "sentence"),
)"""

EXAMPLES = {
    # attention
    "sequence_attention": """
rows = tl.LoDTensor(x.values()[:, None], x.lod)  # of one number
within = tl.sequence_attention(rows, rows, rows)
so_far = tl.sequence_attention(rows, rows, rows, causal=True)
of_article = tl.sequence_attention(rows, rows, rows, level="article")
""",
    "rotary_embedding": """
rows = tl.LoDTensor(torch.stack([x.values(), 0 * x.values()], 1), x.lod)
turned = tl.rotary_embedding(rows)
""",
    # labels
    "ctc_decode": """
rows = tl.LoDTensor(torch.nn.functional.one_hot(x.values().long() % 3, 3).float(), x.lod)  # of three classes
labels = tl.ctc_decode(rows)
""",
    "ctc_beam_decode": """
rows = tl.LoDTensor(torch.nn.functional.one_hot(x.values().long() % 3, 3).float(), x.lod)
labels, scores = tl.ctc_beam_decode(rows, n_best=2)
""",
    "ctc_alignment": """
rows = tl.LoDTensor(torch.nn.functional.one_hot(x.values().long() % 3, 3).float(), x.lod)
labels = tl.ctc_decode(rows)
path, scores = tl.ctc_alignment(rows, labels)
""",
    "ctc_align": "labels = tl.paddle.ctc_align(x.long() // 2)",
    "ctc_greedy_decoder": """
rows = tl.LoDTensor(torch.nn.functional.one_hot(x.values().long() % 3, 3).float(), x.lod)
labels = tl.paddle.ctc_greedy_decoder(rows, 0)
""",
    "warpctc": """
rows = tl.LoDTensor(torch.nn.functional.one_hot(x.values().long() % 3, 3).float(), x.lod)
labels = tl.ctc_decode(rows)
loss = tl.paddle.warpctc(rows, labels)
""",
    "edit_distance": """
other = tl.sequence_reverse(x.long())
distance = tl.edit_distance(x.long(), other)
distance, of_x, of_other = tl.edit_distance(x.long(), other, return_alignment=True)
""",
    # pairs
    "sequence_pairs": """
y = tl.sequence_slice(x, [0, 0, 0, 1], [1, 1, 0, 1])  # the sentences cut short
i, j = tl.sequence_pairs(x, y)
""",
    "sequence_pairwise": """
points = torch.stack([x, 0 * x], 1)
products = tl.sequence_pairwise(points, points)
distances = tl.sequence_pairwise(points, points, "euclidean")
""",
    "sequence_knn": """
column = x[:, None]
distances, row = tl.sequence_knn(column, column, 2)  # itself and another
""",
    # gather
    "sequence_gather": """
index = (x < 3).long()  # a position for each row
taken = tl.sequence_gather(x, index)
some = tl.from_lengths(torch.tensor([2, 0, -1, 1]), [[2, 2], [2, 0, 1, 1]])
of_some = tl.sequence_gather(x, some)
sentence = tl.from_lengths(torch.tensor([1, 0, 1]), [[1, 2]])
sentences = tl.sequence_gather(x, sentence, level="article")
""",
    # pool
    "sequence_pool": """
sentences = tl.sequence_pool(x, "sum")
articles = tl.sequence_pool(x, "sum", level="article")
largest, row = tl.sequence_pool(x, "max", return_index=True)
""",
    # order
    "sequence_quantile": """
upper = tl.sequence_quantile(x, 0.75)
ends = tl.sequence_quantile(x, torch.tensor([0.0, 1.0]))
of_article = tl.sequence_quantile(x, 0.5, level="article")
""",
    # linear
    "sequence_scan": """
decayed = tl.sequence_scan(x, 0.5)
to_come = tl.sequence_scan(x, 0.5, reverse=True)
again = tl.sequence_scan(x, (x != 1.0).float())  # a sum that starts again at 1
decayed, state = tl.sequence_scan(x, 0.5, return_state=True)
""",
    "gated_delta_rule": """
v = x[:, None, None]  # one head of one number
k = q = tl.LoDTensor(torch.ones(6, 1, 1), x.lod)
g = tl.LoDTensor(torch.zeros(6, 1), x.lod)  # nothing is forgotten
beta = tl.LoDTensor(torch.full((6, 1), 0.5), x.lod)  # half of what was there is written over
out, state = tl.gated_delta_rule(q, k, v, g, beta, return_state=True)
""",
    "linear_attention": """
v = x[:, None, None]  # one head of one number
k = q = tl.LoDTensor(torch.ones(6, 1, 1), x.lod)
summed = tl.linear_attention(q, k, v)
of_article = tl.linear_attention(q, k, v, level="article")
""",
    "ssd": """
v = x[:, None, None]  # one head of one number
B = C = tl.LoDTensor(torch.ones(6, 1, 1), x.lod)
dt = tl.LoDTensor(torch.ones(6, 1), x.lod)
A = torch.tensor([0.5]).log()  # half is kept
out, state = tl.ssd(v, dt, A, B, C, return_state=True)
""",
    "sequence_first_step": "first = tl.paddle.sequence_first_step(x)",
    "sequence_last_step": "last = tl.paddle.sequence_last_step(x)",
    "sequence_argmax": """
row = tl.sequence_argmax(x)
of_article = tl.sequence_argmax(x, level="article")
""",
    "sequence_topk": "largest, row = tl.sequence_topk(x, 2)",
    "sequence_loss": """
loss_rows = x / 10
of_rows = tl.sequence_loss(loss_rows)
of_sentences = tl.sequence_loss(loss_rows, "sequence")
of_articles = tl.sequence_loss(loss_rows, "article")
without_5 = tl.sequence_loss(loss_rows, mask=x != 5)
""",
    "fused_embedding_seq_pool": """
ids = x.long()
weight = torch.arange(14.0).view(7, 2)
vectors = tl.paddle.fused_embedding_seq_pool(ids, weight)
""",
    "sequence_topk_avg_pooling": """
row = tl.from_lengths(torch.zeros(3), [[2, 1]])
col = tl.from_lengths(torch.zeros(3), [[1, 2]])
scores = tl.from_lengths(torch.tensor([1.0, 2.0, 3.0, 5.0]), [[2, 2]])  # 2 x 1 and 1 x 2
means = tl.paddle.sequence_topk_avg_pooling(scores, row, col, [1, 2], 1)
""",
    # chain
    "linear_chain_crf": """
emission = tl.LoDTensor(torch.stack([x.values(), 3 - x.values()], 1), x.lod)  # two tags
label = x.long() % 2
transition = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]])  # start, end, from each to each
loss = tl.paddle.linear_chain_crf(emission, label, transition)
""",
    "crf_decoding": """
emission = tl.LoDTensor(torch.stack([x.values(), 3 - x.values()], 1), x.lod)
transition = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]])
tags = tl.paddle.crf_decoding(emission, transition)
right = tl.paddle.crf_decoding(emission, transition, x.long() % 2)
""",
    # within
    "sequence_softmax": """
of_sentence = tl.sequence_softmax(x)
of_article = tl.sequence_softmax(x, level="article")
""",
    "sequence_log_softmax": "logarithms = tl.sequence_log_softmax(x)",
    "sequence_normalize": "normal = tl.sequence_normalize(x)",
    "sequence_cumsum": """
so_far = tl.sequence_cumsum(x)
to_come = tl.sequence_cumsum(x, reverse=True)
of_article = tl.sequence_cumsum(x, level="article")
""",
    "sequence_cumprod": "product = tl.sequence_cumprod(x)",
    "sequence_cummax": "largest, row = tl.sequence_cummax(x)",
    "sequence_cummin": "smallest, row = tl.sequence_cummin(x)",
    "sequence_logcumsumexp": "so_far = tl.sequence_logcumsumexp(x)",
    "sequence_sort": """
ascending = tl.sequence_sort(x)
by_length = tl.sequence_sort(x, level="article")
_, rank = tl.sequence_sort(x, return_rank=True)
""",
    # levels
    "sequence_chunk": """
pairs = tl.sequence_chunk(x, 2, name="pair")
sentences = tl.sequence_chunk(x, 1, level="article")
overlapping = tl.sequence_chunk(x, 2, 1)
""",
    "sequence_roll": """
words = tl.sequence_roll(x, 1)
sentences = tl.sequence_roll(x, 1, level="article")
""",
    "sequence_interleave": """
y = x + 10
both = tl.sequence_interleave([x, y])
sentences = tl.sequence_interleave([x, y], level="article")
""",
    "sequence_unique": """
twice = tl.cat([x, x], along="within")
kept = tl.sequence_unique(twice)
kept, inverse, counts = tl.sequence_unique(twice, return_inverse=True, return_counts=True)
""",
    # rearrange
    "sequence_reverse": """
words = tl.sequence_reverse(x)
sentences = tl.sequence_reverse(x, level="article")
""",
    "sequence_slice": """
half = x.lod.lengths() // 2
part = tl.sequence_slice(x, half, half)
cut = tl.sequence_slice(x, 1, 2, clamp=True)
""",
    "sequence_concat": """
y = x + 10
both = tl.paddle.sequence_concat([x, y])
by_article = tl.paddle.sequence_concat([x, y], level="article")
""",
    "sequence_shift": """
before = tl.sequence_shift(x, 1)
sentences = tl.sequence_shift(x, 1, level="article")
""",
    "sequence_sample": """
_ = torch.manual_seed(0)
drawn = tl.sequence_sample(x, 1)
""",
    "sequence_dropout": """
_ = torch.manual_seed(1)
kept = tl.sequence_dropout(x, 0.5)
""",
    "sequence_expand": """
length = x.lengths().float()
repeated = tl.sequence_expand(length, x)
times = tl.LoD.from_lengths([[2, 1]])
articles = tl.sequence_expand(x, times)
""",
    "sequence_expand_as": """
first = tl.paddle.sequence_first_step(x)
laid_over = tl.sequence_expand_as(first, x)
""",
    "broadcast": """
mean = tl.sequence_pool(x, "mean")
same, over_rows = tl.broadcast(x, mean)
""",
    # layout
    "sequence_pad": "dense, lengths = tl.paddle.sequence_pad(x, -1)",
    "sequence_unpad": """
dense, lengths = tl.paddle.sequence_pad(x, -1)
back = tl.paddle.sequence_unpad(dense, lengths)
""",
    "sequence_mask": """
lengths = x.lengths()
mask = tl.paddle.sequence_mask(lengths, 4)
""",
    "sequence_erase": """
ids = x.long()
kept = tl.paddle.sequence_erase(ids, [1, 5])
""",
    "sequence_enumerate": """
ids = x.long()
windows = tl.paddle.sequence_enumerate(ids, 2)
""",
    "sequence_reshape": """
wide = x[:, None] * torch.tensor([1.0, 10.0])
folded = tl.paddle.sequence_reshape(wide, 1)
""",
    "sequence_scatter": """
start = torch.zeros(2, 3)
index = tl.from_lengths(torch.tensor([0, 2, 2, 1]), [[3, 1]])
updates = index.with_values(torch.tensor([1.0, 2.0, 3.0, 4.0]))
sums = tl.paddle.sequence_scatter(start, index, updates)
""",
    "lod_reset": """
flat = x.lod.drop_level("article")
sentences = tl.paddle.lod_reset(x, flat)
halves = tl.paddle.lod_reset(x, [[4, 2]])
""",
    "lod_append": """
rows, lengths = x.values(), x.lod.lengths()
sentences = tl.paddle.lod_append(rows, lengths)
finer = tl.paddle.lod_append(sentences, [2, 0, 1, 1, 1, 1])
""",
    # windows
    "sequence_conv": """
column = x[:, None]
weight = torch.tensor([[1.0], [10.0], [100.0]])
mixed = tl.paddle.sequence_conv(column, weight, context_length=3)
""",
    "sequence_conv1d": """
column = x[:, None]
weight = torch.tensor([[[1.0, 10.0, 100.0]]])
same = tl.sequence_conv1d(column, weight)
causal = tl.sequence_conv1d(column, weight, padding="causal")
""",
    "row_conv": """
column = x[:, None]
weight = torch.tensor([[10.0], [1.0]])
ahead = tl.paddle.row_conv(column, weight)
""",
    "sequence_unfold": """
windows = tl.sequence_unfold(x, 2)
of_article = tl.sequence_unfold(x, 2, level="article")
""",
    "im2sequence": """
images = torch.arange(9.0).view(1, 1, 3, 3)
windows = tl.paddle.im2sequence(images, 2)
""",
    # fused
    "cvm": """
rows = tl.from_lengths(torch.tensor([[9.0, 3.0, 0.5], [4.0, 0.0, 0.7]]), [[1, 1]])  # shows, clicks, a feature
logarithms = tl.paddle.cvm(rows)
without = tl.paddle.cvm(rows, use_cvm=False)
""",
    "filter_by_instag": """
tags = tl.from_lengths(torch.tensor([7, 8, 9]), [[2, 1]])  # of the articles
kept, counts, where = tl.paddle.filter_by_instag(x, tags, [9])
""",
    "fusion_seqpool_concat": """
rows = x[:, None]
sentences = tl.paddle.fusion_seqpool_concat([rows, 10 * rows])
""",
    "fusion_seqpool_cvm_concat": """
rows = x[:, None] * torch.tensor([1.0, 0.5, 10.0])  # shows, clicks, a feature
sentences = tl.paddle.fusion_seqpool_cvm_concat([rows])
""",
    "fusion_seqconv_eltadd_relu": """
column = x[:, None]
weight, bias = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([-150.0])
mixed = tl.paddle.fusion_seqconv_eltadd_relu(column, weight, bias, context_length=3)
""",
    "fusion_seqexpand_concat_fc": """
rows, of_article = x[:, None], torch.tensor([[0.5], [-0.5]])
weight, bias = torch.tensor([[1.0], [10.0]]), torch.tensor([0.0])
mixed = tl.paddle.fusion_seqexpand_concat_fc([rows, of_article], weight, bias, "relu")
""",
    # match
    "match_matrix_tensor": """
rows = torch.stack([x, 0 * x], 1)
weight = torch.eye(2)[:, None] * torch.tensor([1.0, 10.0])[:, None]  # two channels
scores = tl.paddle.match_matrix_tensor(rows, rows, weight)
""",
    "var_conv_2d": """
scores = tl.from_lengths(torch.arange(1.0, 11.0), [[6, 4]])
row, col = tl.from_lengths(torch.zeros(4), [[2, 2]]), tl.from_lengths(torch.zeros(5), [[3, 2]])
weight = torch.ones(1, 1, 1, 3)
sums = tl.paddle.var_conv_2d(scores, row, col, weight)
""",
    "tree_conv": """
nodes = x[:, None]
edges = tl.from_lengths(torch.tensor([[1, 2], [1, 3], [2, 1]]), [[2, 2], [2, 0, 0, 1]])
weight = torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1)  # left, right, top
mixed = tl.paddle.tree_conv(nodes, edges, weight)
""",
    # plan
    "lod_rank_table": """
table = tl.paddle.lod_rank_table(x, level="sentence")
articles = tl.paddle.lod_rank_table(x)
""",
    "max_sequence_len": """
table = tl.paddle.lod_rank_table(x, level="sentence")
steps = tl.paddle.max_sequence_len(table)
""",
    "lod_tensor_to_array": """
table = tl.paddle.lod_rank_table(x, level="sentence")
steps = tl.paddle.lod_tensor_to_array(x, table)
by_article = tl.paddle.lod_tensor_to_array(x, tl.paddle.lod_rank_table(x))
""",
    "array_to_lod_tensor": """
table = tl.paddle.lod_rank_table(x, level="sentence")
steps = tl.paddle.lod_tensor_to_array(x, table)
back = tl.paddle.array_to_lod_tensor(steps, table)
""",
    "reorder_lod_tensor_by_rank": """
table = tl.paddle.lod_rank_table(x, level="sentence")
states = x.lengths("sentence").float()
ranked = tl.paddle.reorder_lod_tensor_by_rank(states, table)
""",
    "shrink_memory": """
table = tl.paddle.lod_rank_table(x, level="sentence")
states = tl.paddle.reorder_lod_tensor_by_rank(x.lengths("sentence").float(), table)
alive = tl.paddle.shrink_memory(states, 1, table)
""",
    "split_lod_tensor": """
mask = x.lod.lengths("sentence") > 1
long, short = tl.paddle.split_lod_tensor(x, mask, level="sentence")
""",
    "merge_lod_tensor": """
mask = x.lod.lengths("sentence") > 1
long, short = tl.paddle.split_lod_tensor(x, mask, level="sentence")
back = tl.paddle.merge_lod_tensor(long, short, x, mask, level="sentence")
""",
    # map
    "map_sequences": """
def steps(stack):  # (count, length)
    return stack.diff(dim=1, prepend=stack[:, :1])


changes = tl.map_sequences(steps, x)
largest = tl.map_sequences(lambda stack: stack.amax(1), x, results="sequences")
""",
    # scan
    "scan": """
def cell(row, state):
    return 10 * state + row


start = torch.zeros(x.num_sequences("sentence"))
outputs, last = tl.scan(cell, x, start)
""",
    # points
    "sequence_farthest": """
rows = tl.sequence_farthest(x[:, None], 2, level="article")
""",
    "sequence_radius": """
near = tl.sequence_radius(x[:, None], 2.0)
""",
    # products
    "sequence_matmul": """
rows = x[:, None]
w = torch.tensor([[[1.0, 2.0]], [[-1.0, 0.0]]])  # of every article
y = tl.sequence_matmul(rows, w, level=0)
""",
    # tags
    "chunk_f1": """
names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
found = tl.LoDTensor(torch.tensor([1, 2, 0, 3, 4, 1]), x.lod)
tags = tl.LoDTensor(torch.tensor([1, 2, 0, 3, 3, 4]), x.lod)
scores = tl.chunk_f1(found, tags, names)
""",
    # chunks
    "chunk_eval": """
tags = tl.LoDTensor(torch.tensor([0, 1, 4, 2, 3, 0]), x.lod)  # B-0 I-0 O | B-1 | | I-1 B-0
right = tl.LoDTensor(torch.tensor([0, 1, 4, 2, 2, 3]), x.lod)
scores = tl.paddle.chunk_eval(tags, right, "IOB", 2)
""",
    # decoding
    "beam_search": """
begun = tl.from_lengths(torch.tensor([5, 7, 0]), [[2, 1], [1, 1, 1]])  # hypotheses of two sources; 0 ends one
so_far = torch.tensor([-1.0, -2.0, -1.0])
scores = torch.tensor([[-9.0, -3.0, -4.0], [-2.5, -8.0, -3.5], [-2.0, -2.0, -2.0]])
words, best, row = tl.paddle.beam_search(begun, so_far, None, scores, beam_size=2, end_id=0, return_parent_idx=True)
""",
    "beam_search_decode": """
first = tl.from_lengths(torch.tensor([5, 7]), [[1], [2]])  # the first step selects two words
second = tl.from_lengths(torch.tensor([6, 0]), [[2], [2, 0]])  # the second two that continue the word 5
scores = tl.from_lengths(torch.tensor([-1.0, -2.0]), [[1], [2]])
later = tl.from_lengths(torch.tensor([-3.0, -2.5]), [[2], [2, 0]])
words, best = tl.paddle.beam_search_decode([first, second], [scores, later], beam_size=2, end_id=0)
""",
    # recurrent
    "dynamic_lstm": """
gates = tl.LoDTensor(torch.outer(x.values(), torch.ones(4)), x.lod)  # one hidden unit
hidden, cell = tl.paddle.dynamic_lstm(gates, torch.ones(1, 4), use_peepholes=False)
""",
    "dynamic_lstmp": """
gates = tl.LoDTensor(torch.outer(x.values(), torch.ones(4)), x.lod)
projection, cell = tl.paddle.dynamic_lstmp(gates, torch.ones(2, 4), torch.ones(1, 2), use_peepholes=False)
""",
    "dynamic_gru": """
gates = tl.LoDTensor(torch.outer(x.values(), torch.ones(3)), x.lod)
hidden = tl.paddle.dynamic_gru(gates, torch.ones(1, 3))
""",
    "lstm_unit": "h, c = tl.paddle.lstm_unit(torch.ones(2, 4), torch.zeros(2, 1), forget_bias=1.0)",
    "gru_unit": "h, reset, gates = tl.paddle.gru_unit(torch.ones(2, 3), torch.ones(2, 1), torch.ones(1, 3))",
    "fusion_lstm": """
rows = tl.LoDTensor(x.values()[:, None], x.lod)
hidden, cell = tl.paddle.fusion_lstm(rows, torch.ones(1, 4), torch.ones(1, 4), use_peepholes=False)
""",
    "fusion_gru": """
rows = tl.LoDTensor(x.values()[:, None], x.lod)
hidden = tl.paddle.fusion_gru(rows, torch.ones(1, 3), torch.ones(1, 3))
""",
    "fused_embedding_fc_lstm": """
ids = x.long()
table = torch.arange(28.0).view(7, 4) / 28
hidden, cell = tl.paddle.fused_embedding_fc_lstm(ids, table, torch.ones(1, 4), use_peepholes=False)
""",
    "attention_lstm": """
rows = tl.from_lengths(torch.tensor([[3.0], [1.0], [2.0], [5.0]]), [[3, 1]])
hidden, cell = tl.paddle.attention_lstm(rows, torch.zeros(2, 1), torch.ones(2, 1), torch.ones(2, 4), torch.zeros(4))
""",
}
