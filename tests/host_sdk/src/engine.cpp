// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime.hpp"

namespace host_sdk {
namespace {

// What unwritten memory holds in two runs: a NaN in float and half, and a small number, so that nothing written equals
// both and an addition to it shows. Between vectors one bit differs.
constexpr std::uint8_t kPoison = 0xff;
constexpr std::uint8_t kOtherPoison = 0x3d;
constexpr std::uint8_t kBetween = 0x01;
constexpr std::size_t kRedzone = 64;

[[noreturn]] void fail(const std::string& where, const std::string& field, const std::string& what) {
  throw poplar::poplar_error(where + (field.empty() ? "" : ", field '" + field + "'") + ": " + what);
}

const char* describeAccess(int access) { return access == kInput ? "Input" : access == kOutput ? "Output" : "InOut"; }

unsigned stateBytes(const HostSdkField& field, const Edge& edge) {
  const auto pointer = [](int layout) { return layout == kSpan ? 8u : layout == kCompactPtr ? 2u : 4u; };
  switch (field.kind) {
    case kState:
      return sizeOfType(field.type);
    case kStateVector:
      return pointer(field.layout) + static_cast<unsigned>(edge.values.size()) * sizeOfType(field.type);
    case kEdge:
      return 4;
    case kEdgeVector:
      return pointer(field.layout);
    case kEdgeList:
      return pointer(field.list_layout) + 4 * static_cast<unsigned>(edge.tensors.size());
    default:
      return pointer(field.list_layout) + pointer(field.layout) * static_cast<unsigned>(edge.tensors.size());
  }
}

/// The data of one edge, at exactly the alignment its field asks for, with a redzone before and one after it.
struct Buffer {
  const HostSdkField* field = nullptr;
  const poplar::Tensor* tensor = nullptr;
  std::size_t bytes = 0;
  std::size_t offset = 0;  // of the data in the arena
};

class VertexRun {
 public:
  VertexRun(GraphState& graph, const VertexNode& vertex, std::string where)
      : graph_(graph), vertex_(vertex), where_(std::move(where)) {
    layOut();
  }

  std::size_t arenaSize() const { return arena_.size(); }

  /// Poison outputs and redzones, gather inputs, point the fields at them.
  void prepare(std::uint8_t poison) {
    poison_ = poison;
    std::fill(arena_.begin(), arena_.end(), static_cast<std::uint8_t>(poison ^ kBetween));
    std::fill(object_.begin(), object_.end(), 0);
    for (const auto& buffer : buffers_) {
      if (buffer.field->access == kOutput) {
        std::fill_n(data(buffer), buffer.bytes, poison);
      } else {
        graph_.read(*buffer.tensor, data(buffer));
      }
    }
    before_ = arena_;
    bindFields();
  }

  void run(unsigned worker) { vertex_.type->compute(object(), worker); }

  void runAll(unsigned workers, bool reversed = false) {
    host_sdk_hooks()->workers = workers;
    if (!vertex_.type->multi) {
      run(0);
      return;
    }
    for (unsigned i = 0; i < workers; ++i) run(reversed ? workers - 1 - i : i);
  }

  /// Redzones and inputs must be as they were; loads and stores must have been aligned.
  void verify() const {
    HostSdkHooks& hooks = *host_sdk_hooks();
    if (hooks.misaligned) {
      hooks.misaligned = 0;
      std::ostringstream out;
      out << "a load or store needs more alignment than its field asks for (" << hooks.misaligned_file << ":"
          << hooks.misaligned_line << "); ask for it in the field, Vector<T, layout, 8>";
      fail(where_, "", out.str());
    }
    std::size_t cursor = 0;
    for (const auto& buffer : buffers_) {
      checkUnchanged(cursor, buffer.offset, buffer, "wrote before the first element");
      const std::size_t end = buffer.offset + buffer.bytes;
      if (buffer.field->access == kInput &&
          std::memcmp(&arena_[buffer.offset], &before_[buffer.offset], buffer.bytes)) {
        fail(where_, buffer.field->name, "wrote to an Input; use InOut, or a fresh Output");
      }
      checkUnchanged(end, std::min(end + kRedzone, arena_.size()), buffer, "wrote after the last element");
      cursor = end + kRedzone;
    }
  }

  const std::vector<std::uint8_t>& arena() const { return arena_; }
  const std::vector<std::uint8_t>& before() const { return before_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::string& where() const { return where_; }
  std::uintptr_t address(const Buffer& buffer) const {
    return reinterpret_cast<std::uintptr_t>(&arena_[buffer.offset]);
  }

  void scatter(const std::vector<std::uint8_t>& arena) {
    for (const auto& buffer : buffers_) {
      if (buffer.field->access != kInput) graph_.write(*buffer.tensor, arena.data() + buffer.offset);
    }
  }

 private:
  void layOut() {
    const auto& type = *vertex_.type;
    std::size_t size = kRedzone;
    for (std::size_t f = 0; f < type.field_count; ++f) {
      const HostSdkField& field = type.fields[f];
      if (field.access == kNone) continue;
      for (const auto& tensor : vertex_.edges[f].tensors) {
        Buffer buffer;
        buffer.field = &field;
        buffer.tensor = &tensor;
        buffer.bytes = tensor.numElements() * sizeOfType(field.type);
        buffer.offset = size;  // made exact below, once the arena has an address
        buffers_.push_back(buffer);
        size += buffer.bytes + 2 * kRedzone + 4 * field.align;
      }
    }
    arena_.resize(size + kRedzone + 64);
    std::size_t cursor = kRedzone;
    for (auto& buffer : buffers_) {
      const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(arena_.data());
      const std::uintptr_t align = buffer.field->align;
      std::uintptr_t at = (base + cursor) / (2 * align) * (2 * align) + align;
      if (at < base + cursor) at += 2 * align;
      buffer.offset = at - base;
      cursor = buffer.offset + buffer.bytes + 2 * kRedzone;
    }
    object_.resize((type.size + type.align) / 8 + 2);
    std::size_t list_edges = 0;
    for (std::size_t f = 0; f < type.field_count; ++f) list_edges += vertex_.edges[f].tensors.size();
    lists_.resize(list_edges);
    std::size_t values = 0;
    for (const auto& edge : vertex_.edges) values += edge.values.size();
    state_.resize(values + 1);
  }

  void* object() {
    const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(object_.data());
    const std::uintptr_t align = vertex_.type->align;
    return reinterpret_cast<void*>((base + align - 1) / align * align);
  }

  std::uint8_t* data(const Buffer& buffer) { return arena_.data() + buffer.offset; }

  void bindFields() {
    const auto& type = *vertex_.type;
    auto* object = static_cast<std::uint8_t*>(this->object());
    std::size_t buffer = 0;
    std::size_t list = 0;
    std::size_t state = 0;
    for (std::size_t f = 0; f < type.field_count; ++f) {
      const HostSdkField& field = type.fields[f];
      const Edge& edge = vertex_.edges[f];
      std::uint8_t* at = object + field.offset;
      if (field.kind == kState) {
        storeNumber(field.type, edge.values.at(0), at);
        continue;
      }
      HostSdkEdge value = {nullptr, 0};
      if (field.kind == kStateVector) {
        auto* numbers = reinterpret_cast<std::uint8_t*>(&state_[state]);
        const unsigned bytes = sizeOfType(field.type);
        for (std::size_t i = 0; i < edge.values.size(); ++i)
          storeNumber(field.type, edge.values[i], numbers + i * bytes);
        state += edge.values.size();
        value = {numbers, edge.values.size()};
      } else if (field.kind == kEdge || field.kind == kEdgeVector) {
        value = {data(buffers_[buffer]), edge.tensors[0].numElements()};
        ++buffer;
      } else {
        value = {&lists_[list], edge.tensors.size()};
        for (const auto& tensor : edge.tensors) lists_[list++] = {data(buffers_[buffer++]), tensor.numElements()};
      }
      std::memcpy(at, &value, sizeof value);
    }
  }

  void checkUnchanged(std::size_t begin, std::size_t end, const Buffer& buffer, const char* what) const {
    for (std::size_t i = begin; i < end; ++i) {
      if (arena_[i] != (poison_ ^ kBetween)) fail(where_, buffer.field->name, what);
    }
  }

  GraphState& graph_;
  const VertexNode& vertex_;
  std::string where_;
  std::uint8_t poison_ = kPoison;
  std::vector<Buffer> buffers_;
  std::vector<std::uint8_t> arena_;
  std::vector<std::uint8_t> before_;
  std::vector<std::uint64_t> object_;
  std::vector<HostSdkEdge> lists_;
  std::vector<std::uint64_t> state_;
};

std::string elementOf(const Buffer& buffer, std::size_t byte) {
  return "element " + std::to_string(byte / sizeOfType(buffer.field->type));
}

/// Two runs that differ only in what unwritten memory held.
void checkPoison(const VertexRun& run, const std::vector<std::uint8_t>& first,
                 const std::vector<std::uint8_t>& second) {
  for (const auto& buffer : run.buffers()) {
    if (buffer.field->access == kInput) continue;
    const unsigned bytes = sizeOfType(buffer.field->type);
    for (std::size_t i = 0; i < buffer.bytes; i += bytes) {
      const std::uint8_t* a = &first[buffer.offset + i];
      const std::uint8_t* b = &second[buffer.offset + i];
      if (std::memcmp(a, b, bytes) == 0) continue;
      const bool untouched = std::all_of(a, a + bytes, [](std::uint8_t x) { return x == kPoison; }) &&
                             std::all_of(b, b + bytes, [](std::uint8_t x) { return x == kOtherPoison; });
      if (untouched && buffer.field->access == kOutput) {
        fail(run.where(), buffer.field->name, elementOf(buffer, i) + " of an Output was not written");
      }
      fail(run.where(), buffer.field->name,
           elementOf(buffer, i) +
               " depends on what memory held before: the vertex reads an Output before writing it, or reads outside "
               "its vectors");
    }
  }
}

/// Which worker wrote which 32-bit word; workers must not share one.
class WordOwners {
 public:
  explicit WordOwners(const VertexRun& run) : run_(run), owner_(run.arenaSize() / 4 + 2, -1) {}

  void add(unsigned worker) {
    const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(run_.arena().data()) / 4;
    for (const auto& buffer : run_.buffers()) {
      if (buffer.field->access == kInput) continue;
      for (std::size_t i = 0; i < buffer.bytes; ++i) {
        if (run_.arena()[buffer.offset + i] == run_.before()[buffer.offset + i]) continue;
        auto& owner = owner_[(run_.address(buffer) + i) / 4 - base];
        if (owner >= 0 && owner != static_cast<int>(worker)) {
          std::ostringstream out;
          out << "workers " << owner << " and " << worker << " write to the same 32-bit word at "
              << elementOf(buffer, i) << "; an IPU loses one of the writes: split on 8-byte grains";
          fail(run_.where(), buffer.field->name, out.str());
        }
        owner = static_cast<int>(worker);
      }
    }
  }

 private:
  const VertexRun& run_;
  std::vector<int> owner_;
};

bool close(const std::string& type, const std::uint8_t* a, const std::uint8_t* b) {
  const unsigned bytes = sizeOfType(type);
  if (std::memcmp(a, b, bytes) == 0) return true;
  if (type != "float" && type != "half") return false;
  const double x = loadNumber(type, a);
  const double y = loadNumber(type, b);
  const double tolerance = type == "float" ? 1e-4 : 2e-2;
  return (std::isnan(x) && std::isnan(y)) || std::fabs(x - y) <= tolerance * (1 + std::fabs(x));
}

void compare(const VertexRun& run, const std::vector<std::uint8_t>& expected, const std::vector<std::uint8_t>& got,
             bool exact, const std::string& what) {
  for (const auto& buffer : run.buffers()) {
    if (buffer.field->access == kInput) continue;
    const unsigned bytes = sizeOfType(buffer.field->type);
    for (std::size_t i = 0; i < buffer.bytes; i += bytes) {
      const std::uint8_t* a = &expected[buffer.offset + i];
      const std::uint8_t* b = &got[buffer.offset + i];
      if (exact ? std::memcmp(a, b, bytes) == 0 : close(buffer.field->type, a, b)) continue;
      fail(run.where(), buffer.field->name, elementOf(buffer, i) + " " + what);
    }
  }
}

struct Access {
  unsigned variable;
  std::size_t begin;
  std::size_t end;
  unsigned vertex;
  const HostSdkField* field;
  bool write;
};

}  // namespace

void GraphState::checkVertex(const VertexNode& vertex, const std::string& where) const {
  if (vertex.tile == kUnmapped) fail(where, "", "the vertex is not mapped to a tile; call setTileMapping");
  if (target.getTargetType() == poplar::TargetType::IPU_MODEL && !vertex.has_perf_estimate) {
    fail(where, "", "an IPU model needs a performance estimate for the vertex; call setPerfEstimate");
  }
  for (std::size_t f = 0; f < vertex.type->field_count; ++f) {
    const HostSdkField& field = vertex.type->fields[f];
    const Edge& edge = vertex.edges[f];
    if (field.access == kNone) {
      if (!edge.has_values) fail(where, field.name, "the field has no initial value");
      continue;
    }
    if (!edge.connected) fail(where, field.name, "the field is not connected");
    for (const auto& tensor : edge.tensors) {
      requireMapped(tensor, where + ", field '" + field.name + "'");
      if (field.access == kInput) continue;
      if (tensor.containsConstant()) fail(where, field.name, "writes to a constant");
      if (tensor.containsAliases()) {
        fail(where, field.name, "writes to a tensor that holds an element twice (broadcast or alias)");
      }
    }
  }
}

void GraphState::checkRaces(const ComputeSetNode& set) const {
  std::vector<Access> accesses;
  for (unsigned id : set.vertices) {
    const VertexNode& vertex = vertices[id];
    for (std::size_t f = 0; f < vertex.type->field_count; ++f) {
      const HostSdkField& field = vertex.type->fields[f];
      if (field.access == kNone) continue;
      for (const auto& tensor : vertex.edges[f].tensors) {
        for (const auto& p : tensor.pieces()) {
          accesses.push_back({p.variable, p.begin, p.begin + p.size, id, &field, field.access != kInput});
        }
      }
    }
  }
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return a.variable < b.variable || (a.variable == b.variable && a.begin < b.begin);
  });
  const auto complain = [&](const Access& a, const Access& b, const std::string& what) {
    const Variable& v = variable(a.variable);
    const auto side = [&](const Access& x) {
      return vertices[x.vertex].type_name + "." + x.field->name + " (" + describeAccess(x.field->access) + ", tile " +
             std::to_string(vertices[x.vertex].tile) + ")";
    };
    throw poplar::poplar_error("compute set '" + set.name + "': " + side(a) + " and " + side(b) + " " + what + " '" +
                               v.name + "' at element " + std::to_string(std::max(a.begin, b.begin)));
  };
  // The access that reaches furthest so far, among writes and among all.
  const Access* write = nullptr;
  const Access* any = nullptr;
  for (const auto& access : accesses) {
    if (any && any->variable != access.variable) write = any = nullptr;
    if (access.write && any && any->end > access.begin) {
      complain(*any, access, any->write ? "both write" : "read and write");
    }
    if (!access.write && write && write->end > access.begin) complain(*write, access, "write and read");
    if (!any || access.end > any->end) any = &access;
    if (access.write && (!write || access.end > write->end)) write = &access;
  }
  // Two vertices of one tile that store into one 32-bit word race, though their elements differ.
  std::map<std::pair<unsigned, std::size_t>, const Access*> words;
  for (const auto& access : accesses) {
    const Variable& v = variable(access.variable);
    const std::size_t bytes = v.type.hostSize();
    if (!access.write || bytes >= 4) continue;
    const unsigned tile = vertices[access.vertex].tile;
    for (const std::size_t element : {access.begin, access.end - 1}) {
      if (v.tileOf(element) != tile) continue;
      const std::size_t block = v.blockStart(element);
      const std::size_t word = block * bytes + (element - block) * bytes / 4 * 4;
      auto& owner = words[{access.variable, word}];
      if (owner && owner->vertex != access.vertex) complain(*owner, access, "both write into one 32-bit word of");
      owner = &access;
    }
  }
}

void GraphState::account(ComputeSetNode& set) const {
  set.load = TileLoad();
  for (unsigned id : set.vertices) {
    const VertexNode& vertex = vertices[id];
    std::size_t state = 0;
    std::size_t scratch = 0;
    for (std::size_t f = 0; f < vertex.type->field_count; ++f) {
      const HostSdkField& field = vertex.type->fields[f];
      state += stateBytes(field, vertex.edges[f]);
      if (field.access == kNone) continue;
      for (const auto& tensor : vertex.edges[f].tensors) {
        const std::size_t bytes = tensor.numElements() * sizeOfType(field.type);
        std::size_t remote = 0;
        bool in_place = tensor.pieces().size() == 1;
        for (const auto& piece : tensor.pieces()) {
          const Variable& v = variable(piece.variable);
          v.eachTile(piece.begin, piece.begin + piece.size, [&](std::size_t begin, std::size_t end, unsigned tile) {
            if (tile != vertex.tile) remote += (end - begin) * v.type.hostSize();
          });
          if ((piece.begin - v.blockStart(piece.begin)) * v.type.hostSize() % field.align) in_place = false;
        }
        set.load.exchanged += field.access == kInOut ? 2 * remote : remote;
        if (remote || !in_place) scratch += (bytes + 7) / 8 * 8;
      }
    }
    set.load.state[vertex.tile] += (state + 7) / 8 * 8;
    set.load.scratch[vertex.tile] += scratch;
  }
}

void GraphState::plan(ComputeSetNode& set) {
  if (set.planned == set.vertices.size()) return;
  for (unsigned id : set.vertices) {
    const VertexNode& vertex = vertices[id];
    checkVertex(vertex, "compute set '" + set.name + "', vertex " + vertex.type_name);
  }
  checkRaces(set);
  account(set);
  set.planned = set.vertices.size();
}

void GraphState::runVertex(const VertexNode& vertex, const std::string& where, bool full) {
  VertexRun run(*this, vertex, where);
  const unsigned workers = target.getNumWorkerContexts();
  run.prepare(kPoison);
  run.runAll(workers);
  run.verify();
  const std::vector<std::uint8_t> result = run.arena();
  if (!full) {
    run.scatter(result);
    return;
  }
  run.prepare(kOtherPoison);
  run.runAll(workers);
  run.verify();
  checkPoison(run, result, run.arena());
  if (vertex.type->multi) {
    WordOwners owners(run);
    for (unsigned worker = 0; worker < workers && workers > 1; ++worker) {
      for (const std::uint8_t poison : {kPoison, kOtherPoison}) {
        run.prepare(poison);
        run.run(worker);
        owners.add(worker);
      }
    }
    run.prepare(kPoison);
    run.runAll(workers, true);
    compare(run, result, run.arena(), true, "depends on the order of the workers");
    const unsigned other = workers == 1 ? 6 : 1;
    run.prepare(kPoison);
    run.runAll(other);
    run.verify();
    compare(run, result, run.arena(), false,
            "differs between " + std::to_string(workers) + " workers and " + std::to_string(other) +
                ": split the work by numWorkers()");
  }
  run.scatter(result);
}

void GraphState::execute(ComputeSetNode& set) {
  plan(set);
  const CheckLevel level = Settings::get().checks;
  const bool full = level == CheckLevel::Full || (level == CheckLevel::First && set.runs == 0);
  ++set.runs;
  host_sdk_hooks()->half_saturates = Settings::get().half_saturates;
  host_sdk_hooks()->misaligned = 0;
  for (unsigned id : set.vertices) {
    const VertexNode& vertex = vertices[id];
    runVertex(vertex,
              "compute set '" + set.name + "', vertex " + vertex.type_name + " on tile " + std::to_string(vertex.tile),
              full);
  }
}

void GraphState::run(const poplar::program::Program& program) {
  using Kind = poplar::program::Program::Node::Kind;
  auto& node = program.hostNode();
  switch (node.kind) {
    case Kind::Nothing:
      return;
    case Kind::Sequence:
      for (const auto& step : node.body) run(step);
      return;
    case Kind::Repeat:
      for (unsigned i = 0; i < node.count; ++i) run(node.body.front());
      return;
    case Kind::Execute:
      execute(compute_sets.at(node.compute_set.getId()));
      return;
    case Kind::Copy: {
      requireMapped(node.source, "Copy '" + node.name + "'");
      requireMapped(node.destination, "Copy '" + node.name + "'");
      std::vector<std::uint8_t> bytes(node.source.numElements() * node.source.elementType().hostSize());
      read(node.source, bytes.data());
      write(node.destination, bytes.data());
      return;
    }
    case Kind::WriteUndef: {
      const std::vector<std::uint8_t> bytes(node.destination.numElements() * node.destination.elementType().hostSize(),
                                            kPoison);
      write(node.destination, bytes.data());
      return;
    }
    case Kind::Library:
      for (const auto* tensor : {&node.source, &node.destination}) requireMapped(*tensor, node.name);
      node.library();
      return;
  }
}

}  // namespace host_sdk
