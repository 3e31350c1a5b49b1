// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
// The graph as the model keeps it, and its execution.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <string>
#include <vector>

#include "host_sdk/abi.hpp"

namespace host_sdk {

enum class CheckLevel { Full, First, Light };

/// Settings of the model, read from the environment once and changeable from the tests.
struct Settings {
  poplar::TargetType target = poplar::TargetType::IPU_MODEL;
  unsigned tiles = 1472;
  unsigned bytes_per_tile = 624 * 1024;
  double memory_margin = 0.1;
  double memory_warning = 0.7;
  bool half_saturates = true;
  CheckLevel checks = CheckLevel::First;
  std::string codelet_driver;  // a command that turns a source path and flags into a library path

  static Settings& get();
};

constexpr unsigned kUnmapped = ~0u;

struct Variable {
  unsigned id = 0;
  poplar::Type type;
  std::string name;
  std::size_t size = 0;
  bool constant = false;
  bool has_initial_value = false;
  bool external = false;                                          // written by the caller before each run
  std::map<std::size_t, std::pair<std::size_t, unsigned>> tiles;  // begin -> (end, tile)
  std::vector<std::uint8_t> data;

  void map(std::size_t begin, std::size_t end, unsigned tile);
  unsigned tileOf(std::size_t element) const;
  /// Calls visit(begin, end, tile) for the parts of a range; unmapped parts have kUnmapped.
  template <class F>
  void eachTile(std::size_t begin, std::size_t end, F&& visit) const;
  /// Where the contiguous block on its tile starts that an element is in.
  std::size_t blockStart(std::size_t element) const;
};

struct Edge {
  std::vector<poplar::Tensor> tensors;
  bool connected = false;
  std::vector<double> values;
  bool has_values = false;
};

struct VertexNode {
  const HostSdkVertex* type = nullptr;
  std::string type_name;
  unsigned compute_set = 0;
  unsigned tile = kUnmapped;
  bool has_perf_estimate = false;
  std::vector<Edge> edges;  // one per field
};

/// Bytes that one compute set needs on a tile besides its variables.
struct TileLoad {
  std::map<unsigned, std::size_t> state;
  std::map<unsigned, std::size_t> scratch;
  std::size_t exchanged = 0;
};

struct ComputeSetNode {
  std::string name;
  std::vector<unsigned> vertices;
  std::size_t planned = 0;  // vertices that the checks have seen
  unsigned runs = 0;
  TileLoad load;
};

class GraphState {
 public:
  explicit GraphState(const poplar::Target& target) : target(target) {}

  poplar::Target target;
  std::vector<std::unique_ptr<Variable>> variables;
  std::vector<VertexNode> vertices;
  std::vector<ComputeSetNode> compute_sets;
  std::map<std::string, const HostSdkVertex*> vertex_types;
  std::map<std::string, std::string> codelets;  // source path -> library

  Variable& variable(unsigned id) const { return *variables.at(id); }
  const HostSdkField& field(const poplar::FieldRef& ref, std::size_t& index) const;
  void requireMapped(const poplar::Tensor& tensor, const std::string& what) const;

  /// Everything Poplar checks when it compiles a compute set.
  void plan(ComputeSetNode& set);
  void execute(ComputeSetNode& set);
  void run(const poplar::program::Program& program);

  void read(const poplar::Tensor& tensor, void* destination) const;
  void write(const poplar::Tensor& tensor, const void* source);
  void fill(Variable& variable, const double* values, std::size_t count, std::size_t begin, std::size_t size);

 private:
  void checkVertex(const VertexNode& vertex, const std::string& where) const;
  void checkRaces(const ComputeSetNode& set) const;
  void account(ComputeSetNode& set) const;
  void runVertex(const VertexNode& vertex, const std::string& where, bool full);
};

/// Bytes of a tensor per tile.
void addTensorBytes(const GraphState& graph, const poplar::Tensor& tensor, std::map<unsigned, std::size_t>& per_tile);

void storeNumber(const std::string& type, double value, void* destination);
double loadNumber(const std::string& type, const void* source);
unsigned sizeOfType(const std::string& type);

/// A line on standard error that says what this is.
void notice(const std::string& text);

template <class F>
void Variable::eachTile(std::size_t begin, std::size_t end, F&& visit) const {
  auto it = tiles.upper_bound(begin);
  if (it != tiles.begin()) --it;
  while (begin < end) {
    while (it != tiles.end() && it->second.first <= begin) ++it;
    if (it == tiles.end() || it->first >= end) {
      visit(begin, end, kUnmapped);
      return;
    }
    if (it->first > begin) {
      visit(begin, it->first, kUnmapped);
      begin = it->first;
    }
    const std::size_t stop = std::min(end, it->second.first);
    visit(begin, stop, it->second.second);
    begin = stop;
  }
}

}  // namespace host_sdk
