// Structure on a GPU that no LoD made is looked at there, by one kernel, and the host does not wait. What it finds is
// raised by a later call: never an assertion of the device, which would end the process's use of it.
// SPDX-License-Identifier: Apache-2.0
#define LOD_ENTRIES "kernels/faults_api.h"
#include "torch_lod/operator.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <set>

namespace lod {
namespace {

struct Who {
  std::string op, name, of;
  auto operator<=>(const Who&) const = default;
};
std::mutex names;
std::vector<Who> known_names;
std::map<Who, int64_t> numbers;
std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> watched;  // devices

int64_t number_for(const Who& who) {
  const std::lock_guard guard(names);
  const auto [at, fresh] = numbers.emplace(who, int64_t(known_names.size()));
  if (fresh) known_names.push_back(who);
  return at->second;
}

// Never freed: kernels may still write to it when the process ends.
FaultRecord* record() {
  static FaultRecord* const found = [] {
    const auto size = int64_t(sizeof(FaultRecord) / sizeof(int64_t));
    auto* memory = new Tensor(at::empty({size}, at::TensorOptions(at::kLong).pinned_memory(true)));
    auto* place = reinterpret_cast<FaultRecord*>(memory->mutable_data_ptr<int64_t>());
    *place = {};
    written_faults = &place->written;
    return place;
  }();
  return found;
}

[[noreturn]] void say(const std::string& by, const Who& who, const Finding& f, int64_t rows, int64_t option,
                      const std::string& when) {
  const auto& [op, name, of] = who;
  const auto raise = [&](bool position, const auto&... words) {
    const std::string said = c10::str(by, ": expected ", words..., when);
    TORCH_CHECK_INDEX(!position, said);
    TORCH_CHECK_VALUE(false, said);
  };
  switch (f.what) {
    case Finding::start: raise(false, name, " to start at 0, got ", f.here); break;
    case Finding::order:
      raise(false, name, " not to decrease, got ", f.before, " then ", f.here, " at index ", f.index);
      break;
    case Finding::end:
      raise(false, "the last of ", name, " to equal the ", f.before, " rows of ", of, ", got ", f.here, " at index ",
            f.index);
      break;
    case Finding::row: raise(true, name, " in [-1, ", rows - 1, "], got ", f.here, " at index ", f.index); break;
    case Finding::run:
      raise(true, "runs within [0, ", rows, "), got ", f.before, " rows from ", f.here, option > 0 ? " up" : " down",
            " at index ", f.index);
      break;
    case Finding::label:
      raise(true, name, " in [0, ", rows - 1, "] other than the blank ", option, ", got ", f.here, " at index ",
            f.index);
      break;
    case Finding::count: raise(false, name, ", ", f.here, ", got ", rows); break;
    default: raise(false, "what is asked, got a fault at index ", f.index, ": ", name);
  }
  std::abort();  // not reached
}

// Raises what a GPU has found since the last time, if anything.
void raise_found() {
  static std::mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  if (!written_faults || !*written_faults) return;
  std::atomic_thread_fence(std::memory_order_acquire);  // the record was written before
  FaultRecord* place = record();
  const FaultRecord r = *place;
  place->written = 0;
  place->claimed = 0;  // from here on a kernel may report again
  Who who;
  {
    const std::lock_guard names_guard(names);
    who = known_names.at(r.who);
  }
  say("check_errors", who, {Finding::What(r.what), r.index, r.before, r.here}, r.rows, r.option,
      ", in an earlier call of " + who.op + " on a GPU");
}
const bool tells = (raise_written_faults = &raise_found, true);

Watched::Rule rule_of(std::string_view name) {
  constexpr std::string_view known[] = {"cuts", "maps", "runs", "labels", "counts", "truths"};
  for (int64_t i = 0; i < 6; ++i)
    if (known[i] == name) return Watched::Rule(i);
  TORCH_CHECK_VALUE(false, "watch_structure: expected rule 'cuts', 'maps', 'runs', 'labels', 'counts' or 'truths', ",
                    "got '", name, "'");
}

void watch_structure(const Tensor& structure, const OptionalTensor& offsets, std::string_view rule_name, int64_t rows,
                     int64_t own, int64_t option, std::string_view op, std::string_view name, std::string_view of) {
  const char* here = "watch_structure";
  const Watched::Rule rule = rule_of(rule_name);
  check_index(here, "structure", structure, structure.device());
  const bool runs = rule == Watched::runs;
  TORCH_CHECK_VALUE(runs == offsets.has_value(), here, ": expected offsets with the rule 'runs' and no other");
  if (runs) {
    check_offsets_kind(here, *offsets, structure.device(), "offsets");
    TORCH_CHECK_VALUE(offsets->sym_size(0) == structure.sym_size(0) + 1, here,
                      ": expected one of structure per segment, ", offsets->sym_size(0) - 1, ", got ",
                      structure.sym_size(0));
  }
  if (structure.is_meta()) return;
  const Tensor s = readable(structure), o = readable(offsets);
  FindFaults a{{rule, s.const_data_ptr<int64_t>(), runs ? o.const_data_ptr<int64_t>() : nullptr,
                runs ? o.numel() : s.numel(), rows, own, option},
               nullptr,
               0};
  const Who who{std::string(op), std::string(name), std::string(of)};
  if (s.is_cpu()) {
    for (int64_t i = 0; i < a.entries; ++i)
      if (const Finding f = a.look(i); f.what != Finding::nothing) say(who.op, who, f, rows, option, "");
    return;
  }
  a.record = record();
  a.who = number_for(who);
  {
    const std::lock_guard guard(names);
    watched.emplace(s.device().type(), s.device().index());
  }
  LOD_RUN(s, find_faults, a);
}

void check_errors(bool wait) {
  decltype(watched) devices;
  if (wait) {
    const std::lock_guard guard(names);
    devices = watched;
  }
  for (const auto& [type, index] : devices) c10::impl::VirtualGuardImpl(type).synchronizeDevice(index);
  raise_found();
}

using WatchStructure =
    Call<"watch_structure",
         void(const Tensor& structure, const OptionalTensor& offsets, std::string_view rule, int64_t rows, int64_t own,
              int64_t option, std::string_view op, std::string_view name, std::string_view of)>;

}  // namespace

TORCH_LIBRARY_IMPL(torch_lod, Meta, m) { m.impl(WatchStructure::name, &watch_structure); }
TORCH_LIBRARY_IMPL(torch_lod, CompositeExplicitAutograd, m) {
  m.impl(WatchStructure::name, &Gated<WatchStructure, watch_structure>::run);
  m.impl("check_errors", &check_errors);
}

}  // namespace lod
