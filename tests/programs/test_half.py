# SPDX-License-Identifier: Apache-2.0
"""The half types of kernels convert as torch's do, bit for bit."""

import os
import shutil
import subprocess

import pytest
from torch.utils.cpp_extension import include_paths as torch_include_paths

import torch_lod as tl

COMPILER = shutil.which(os.environ.get("CXX", "c++"))

#: Every value of 16 bits as a float; and every upper half of a float, with the lower halves around which both types round.
PROGRAM = r"""
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#include <torch_lod/device.h>

#include <cstdio>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

template <class To, class From>
To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class Own, class Theirs>
void compare(const char* name) {
  long values = 0, roundings = 0, differ = 0;
  for (uint32_t high = 0; high < 65536; ++high) {
    const auto half = uint16_t(high);
    ++values;
    differ += bits<uint32_t>(float(bits<Own>(half))) != bits<uint32_t>(float(bits<Theirs>(half)));
    for (uint32_t middle = 0; middle < 16; ++middle)
      for (const uint32_t low : {0u, 1u, 0x7ffu, 0xfffu}) {
        const float x = bits<float>(high << 16 | middle << 12 | low);
        ++roundings;
        differ += bits<uint16_t>(Own(x)) != bits<uint16_t>(Theirs(x));
      }
  }
  std::printf("%s %ld %ld %ld\n", name, values, roundings, differ);
}
void compare_both() {
  compare<lod::Half, c10::Half>("float16");
  compare<lod::BFloat16, c10::BFloat16>("bfloat16");
}

int main() {
  compare_both();
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() | 0x8040);  // torch.set_flush_denormal(True)
#endif
  compare_both();
}
"""


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_half_types_have_the_bits_of_torch(level, tmp_path):
    source, program = tmp_path / "half.cpp", tmp_path / "half"
    source.write_text(PROGRAM)
    folders = [f"-I{folder}" for folder in (*tl.include_paths(), *torch_include_paths())]
    flags = ["-std=c++20", level, "-fno-math-errno", "-fno-trapping-math"]
    subprocess.run([COMPILER, *flags, *folders, source, "-o", program], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert said == "float16 65536 4194304 0\nbfloat16 65536 4194304 0\n" * 2
