// SPDX-License-Identifier: Apache-2.0
// Every operator's schema, once: csrc/bindings/library.cpp defines the operators from this text, and torch_lod/ops the
// pure PyTorch ones. `name = arguments` names a list of arguments, and {name} below it stands for that list.
R"schemas(
# values: rows first. map: output row -> input row, -1 for none. row_offsets: int64, (segments + 1), from 0 to rows; on
# the device of values, but in host memory for the recurrences, whose steps the host plans.
check_lod(Tensor[] offsets, int rows, bool kept=False) -> int[]
keep_structure(Tensor structure, int rows, bool cuts, bool apart=False, int longest=-1, Tensor? host=None) -> ()
names = str op, str name='row_offsets', str of='values'
watch_structure(Tensor structure, Tensor? offsets, str rule, int rows, int own, int option, {names}) -> ()
check_errors(bool wait=True) -> ()
rank_by_length(Tensor offsets) -> Tensor
taken = Tensor[] levels, Tensor? starts, Tensor? lengths, int elements, bool kept=False
take_runs({taken}, Tensor? within=None, int most=-1, bool last=False) -> (Tensor[], Tensor, int[])
cut_lod(Tensor[] levels, int begin, int end, bool kept=False) -> (Tensor[], int[])
join_lods(Tensor[] levels, int depth, bool kept=False, bool within=False) -> (Tensor[], int[])
locate(Tensor index, Tensor index_offsets, Tensor row_offsets, int each=1, bool absolute=False) -> (Tensor, bool)

# rows
runs = Tensor values, Tensor starts, Tensor row_offsets, SymInt rows, int step=1
run_map(Tensor starts, Tensor row_offsets, SymInt rows, int step=1) -> Tensor
gather_rows(Tensor values, Tensor map, Scalar fill=0) -> Tensor
scatter_rows(Tensor values, Tensor map, SymInt rows) -> Tensor
gather_runs({runs}) -> Tensor
scatter_runs({runs}, Scalar fill=0) -> Tensor
segment_concat(Tensor values, Tensor row_offsets, Tensor others, Tensor other_offsets) -> Tensor
segment_unfold(Tensor values, Tensor row_offsets, SymInt size, int start, int dilation=1, Scalar fill=0) -> Tensor
segment_fold(Tensor values, Tensor row_offsets, int start, int dilation=1) -> Tensor

# segments
segment_reduce(Tensor values, Tensor row_offsets, str reduce, float pad_value=0.0) -> Tensor
segment_extreme(Tensor values, Tensor row_offsets, str reduce, float pad_value=0.0) -> (Tensor, Tensor)
segment_broadcast(Tensor values, Tensor row_offsets, SymInt rows, str reduce='sum') -> Tensor
segment_pick(Tensor values, Tensor index, Tensor row_offsets) -> Tensor
segment_place(Tensor values, Tensor index, Tensor row_offsets, SymInt rows) -> Tensor
segment_softmax(Tensor values, Tensor row_offsets) -> Tensor
segment_softmax_backward(Tensor grad, Tensor output, Tensor row_offsets) -> Tensor
segment_log_softmax(Tensor values, Tensor row_offsets) -> Tensor
segment_log_softmax_backward(Tensor grad, Tensor output, Tensor row_offsets) -> Tensor
segment_logsumexp(Tensor values, Tensor row_offsets, float pad_value=0.0) -> Tensor
var_options = float correction=1.0, bool root=False, float pad_value=0.0
segment_var(Tensor values, Tensor row_offsets, {var_options}) -> Tensor
segment_normalize(Tensor values, Tensor row_offsets, float eps=1e-05) -> Tensor
segment_normalize_backward(Tensor grad, Tensor values, Tensor row_offsets, float eps) -> Tensor

# convolution
segment_conv(Tensor values, Tensor weight, Tensor? bias, Tensor row_offsets, SymInt start, int dilation=1) -> Tensor
conv_weight = Tensor values, Tensor grad, Tensor row_offsets, SymInt size, SymInt start, int dilation=1
segment_conv_weight({conv_weight}) -> Tensor

# scans
segment_scan(Tensor values, Tensor? factors, Tensor row_offsets, bool adjoint=False) -> Tensor
segment_cumulative(Tensor values, Tensor row_offsets, str reduce) -> (Tensor, Tensor)
segment_cumulative_backward(Tensor grad, Tensor index, Tensor row_offsets) -> Tensor
segment_logcumsumexp(Tensor values, Tensor row_offsets) -> Tensor
segment_cumprod(Tensor values, Tensor row_offsets, bool reverse=False, bool exclusive=False) -> Tensor

# orders
segment_order(Tensor values, Tensor row_offsets, bool descending=False) -> Tensor
segment_topk(Tensor values, Tensor row_offsets, SymInt k, bool largest=True) -> Tensor

# recurrences: the *_composed forms are made of torch operators, and serve gradients of gradients
weights = Tensor values, Tensor weight_ih, Tensor weight_hh
layer = {weights}, Tensor? bias_ih, Tensor? bias_hh, Tensor? h_0
steps = Tensor row_offsets, bool reverse=False
steps_back = Tensor row_offsets, bool reverse

lstm_layer = {layer}, Tensor? c_0, {steps}, Tensor? weight_hr=None
lstm({lstm_layer}) -> (Tensor, Tensor, Tensor)
lstm_composed({lstm_layer}) -> (Tensor, Tensor)
lstm_grads = Tensor? grad_output, Tensor? grad_cells
lstm_given = {weights}, Tensor? h_0, Tensor? c_0, {steps_back}
lstm_saved = Tensor output, Tensor cells, Tensor gates, Tensor? weight_hr=None
lstm_backward({lstm_grads}, {lstm_given}, {lstm_saved}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)

gru({layer}, {steps}) -> (Tensor, Tensor)
gru_composed({layer}, {steps}) -> Tensor
gru_given = Tensor grad_output, {weights}, Tensor? h_0, {steps_back}
gru_backward({gru_given}, Tensor output, Tensor saved) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)

rnn({layer}, {steps}, bool relu=False) -> Tensor
rnn_composed({layer}, {steps}, bool relu=False) -> Tensor
rnn_given = Tensor grad_output, {weights}, Tensor? h_0, {steps_back}, bool relu
rnn_backward({rnn_given}, Tensor output) -> (Tensor, Tensor, Tensor, Tensor, Tensor)

# recurrences with a matrix as state
matrix_gates = Tensor decay, Tensor? beta, Tensor? a, Tensor? b
matrix = Tensor query, Tensor key, Tensor value, {matrix_gates}, Tensor? initial, Tensor row_offsets
matrix_scan({matrix}, bool delta=False, float scale=1.0, bool save=True) -> (Tensor, Tensor, Tensor)
matrix_scan_composed({matrix}, bool delta=False, float scale=1.0, bool save=True) -> (Tensor, Tensor)
eight = Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
matrix_grads = Tensor? grad_output, Tensor? grad_last
matrix_scan_backward({matrix_grads}, {matrix}, bool delta, float scale, Tensor saved) -> ({eight})

# attention
inputs = Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets
scores = Tensor? bias=None, Tensor? slopes=None, Tensor? seed=None, float? scale=None
more = float? softcap=None, Tensor? sink=None, Tensor? distance_bias=None, Tensor? key_ends=None
options = {scores}, int left=-1, int right=-1, float dropout=0.0, {more}
attention({inputs}, {options}) -> (Tensor, Tensor)
attention_composed({inputs}, {options}) -> Tensor
scores_back = Tensor? bias, Tensor? slopes, Tensor? seed, float? scale
more_back = float? softcap, Tensor? sink, Tensor? distance_bias, Tensor? key_ends
given = Tensor grad, {inputs}, {scores_back}, int left, int right, float dropout, {more_back}
seven = Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
attention_backward({given}, Tensor output, Tensor logsumexp, bool biases) -> ({seven})

# chains. transition: start, end, then from one tag to another; *_composed as of the recurrences
chain = Tensor values, Tensor transition, Tensor row_offsets
chain_logsumexp({chain}) -> (Tensor, Tensor)
chain_logsumexp_composed({chain}) -> Tensor
chain_logsumexp_backward(Tensor grad, {chain}, Tensor state) -> (Tensor, Tensor)
chain_marginals({chain}) -> Tensor
chain_marginals_composed({chain}) -> Tensor
chain_marginals_backward(Tensor grad, {chain}) -> (Tensor, Tensor)
chain_argmax({chain}, int n=1) -> (Tensor, Tensor)
chain_sample(Tensor state, Tensor transition, Tensor row_offsets, Tensor uniform) -> Tensor

# labels of sequences, by connectionist temporal classification
ctc = Tensor values, Tensor row_offsets, Tensor labels, Tensor label_offsets, int blank=0
ctc_loss({ctc}, bool zero_infinity=False) -> Tensor
ctc_loss_composed({ctc}, bool zero_infinity=False) -> Tensor
ctc_back = Tensor grad, Tensor values, Tensor row_offsets, Tensor labels, Tensor label_offsets, int blank
ctc_loss_backward({ctc_back}) -> Tensor
ctc_best_path({ctc}) -> (Tensor, Tensor)
rows_of_classes = Tensor values, Tensor row_offsets, int blank=0
ctc_beam({rows_of_classes}, int beam=10, int n=1, float threshold=0.0) -> (Tensor, Tensor, Tensor)

# distances of sequences of integers
pairs = Tensor values, Tensor row_offsets, Tensor others, Tensor other_offsets
edit_distance({pairs}) -> Tensor
edit_alignment({pairs}) -> (Tensor, Tensor, Tensor)
)schemas"
