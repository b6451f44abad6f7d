// The torch whose headers the bindings are compiled against: torch_lod/ops/binding.py reads it from the file, to know
// before it loads the library whether it fits.
// SPDX-License-Identifier: Apache-2.0
#include <torch/version.h>

extern "C" {
extern __attribute__((visibility("default"))) const char torch_lod_built_for[];
const char torch_lod_built_for[] = "torch_lod was built for torch " TORCH_VERSION;
}
