// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <stdexcept>
#include <string>

namespace poplar {

struct poplar_error : std::runtime_error {
  explicit poplar_error(const std::string& what) : std::runtime_error(what) {}
};
struct graph_connection_error : poplar_error {
  using poplar_error::poplar_error;
};
struct invalid_tile_mapping : poplar_error {
  using poplar_error::poplar_error;
};
struct type_error : poplar_error {
  using poplar_error::poplar_error;
};
struct vertex_field_error : poplar_error {
  using poplar_error::poplar_error;
};
struct graph_memory_allocation_error : poplar_error {
  using poplar_error::poplar_error;
};
struct graph_program_compilation_error : poplar_error {
  using poplar_error::poplar_error;
};

}  // namespace poplar
