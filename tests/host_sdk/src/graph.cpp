// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "poplar/HalfFloat.hpp"
#include "runtime.hpp"

extern "C" HostSdkHooks* host_sdk_hooks() {
  static HostSdkHooks hooks = {6, 1, 0, nullptr, 0};
  return &hooks;
}

// Called by the compiler's alignment checks in codelets; the data starts with the file name and the line.
extern "C" void __ubsan_handle_type_mismatch_v1(void* data, void*) {
  struct Where {
    const char* file;
    unsigned line;
  };
  const Where* where = static_cast<const Where*>(data);
  HostSdkHooks& hooks = *host_sdk_hooks();
  if (hooks.misaligned) return;
  hooks.misaligned = 1;
  hooks.misaligned_file = where->file;
  hooks.misaligned_line = where->line;
}

namespace host_sdk {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string runCommand(const std::string& command, int& status) {
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw poplar::poplar_error("host SDK: cannot run " + command);
  std::string output;
  std::array<char, 4096> buffer;
  while (std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), n);
  status = pclose(pipe);
  return output;
}

double number(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtod(text, nullptr) : otherwise;
}

std::string word(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? text : otherwise;
}

Settings fromEnvironment() {
  Settings s;
  const bool small = word("POPTORCH_SMALL_IPU_MODEL", "0") != "0";
  s.tiles = static_cast<unsigned>(number("HOST_SDK_TILES", small ? 4 : 1472));
  s.bytes_per_tile = static_cast<unsigned>(number("HOST_SDK_TILE_BYTES", 624 * 1024));
  s.memory_margin = number("HOST_SDK_MEMORY_MARGIN", 0.1);
  s.half_saturates = word("HOST_SDK_HALF", "saturate") != "inf";
  s.target = word("HOST_SDK_TARGET", "ipu_model") == "cpu" ? poplar::TargetType::CPU : poplar::TargetType::IPU_MODEL;
  const std::string checks = word("HOST_SDK_CHECKS", "first");
  s.checks = checks == "full" ? CheckLevel::Full : checks == "light" ? CheckLevel::Light : CheckLevel::First;
  return s;
}

/// The library of a codelet source; compiled, or looked up, again when the file has changed.
std::string compiledCodelets(const std::string& path, const std::string& flags) {
  static std::map<std::string, std::string> known;
  struct stat info = {};
  stat(path.c_str(), &info);
  const std::string key = path + "\n" + flags + "\n" + std::to_string(info.st_mtim.tv_sec) + "." +
                          std::to_string(info.st_mtim.tv_nsec) + " " + std::to_string(info.st_size);
  auto& library = known[key];
  if (!library.empty()) return library;
  int status = 0;
  std::string output =
      runCommand(Settings::get().codelet_driver + " " + quoted(path) + " " + quoted(flags) + " 2>&1", status);
  if (status != 0) {
    throw poplar::poplar_error("addCodelets: codelet file '" + path + "' does not compile:\n" + output);
  }
  while (!output.empty() && output.back() == '\n') output.pop_back();
  // The last line, after whatever the compiler said.
  library = output.substr(output.rfind('\n') == std::string::npos ? 0 : output.rfind('\n') + 1);
  return library;
}

template <class T>
void storeInteger(double value, void* destination) {
  const T narrow = static_cast<T>(value);
  if (static_cast<double>(narrow) != value) {
    std::ostringstream out;
    out << "value " << value << " does not fit a field of " << sizeof(T) << " bytes";
    throw poplar::vertex_field_error(out.str());
  }
  std::memcpy(destination, &narrow, sizeof narrow);
}

}  // namespace

Settings& Settings::get() {
  static Settings settings = fromEnvironment();
  return settings;
}

void notice(const std::string& text) {
  std::fprintf(stderr, "[host_sdk] NOT AN IPU: %s\n", text.c_str());
  std::fflush(stderr);
}

unsigned sizeOfType(const std::string& type) {
  if (type == "float" || type == "int" || type == "unsigned int") return 4;
  if (type == "half" || type == "short" || type == "unsigned short") return 2;
  if (type == "long long" || type == "unsigned long long") return 8;
  return 1;
}

void storeNumber(const std::string& type, double value, void* destination) {
  if (type == "float") {
    const float narrow = static_cast<float>(value);
    std::memcpy(destination, &narrow, sizeof narrow);
  } else if (type == "half") {
    const std::uint16_t bits = toHalfBits(static_cast<float>(value));
    std::memcpy(destination, &bits, sizeof bits);
  } else if (type == "bool") {
    const bool narrow = value != 0;
    std::memcpy(destination, &narrow, sizeof narrow);
  } else if (type == "int") {
    storeInteger<std::int32_t>(value, destination);
  } else if (type == "unsigned int") {
    storeInteger<std::uint32_t>(value, destination);
  } else if (type == "short") {
    storeInteger<std::int16_t>(value, destination);
  } else if (type == "unsigned short") {
    storeInteger<std::uint16_t>(value, destination);
  } else if (type == "unsigned char") {
    storeInteger<std::uint8_t>(value, destination);
  } else if (type == "char" || type == "signed char") {
    storeInteger<std::int8_t>(value, destination);
  } else if (type == "long long") {
    storeInteger<std::int64_t>(value, destination);
  } else if (type == "unsigned long long") {
    storeInteger<std::uint64_t>(value, destination);
  } else {
    throw poplar::type_error("host SDK: no number of type " + type);
  }
}

namespace {
template <class T>
double loadAs(const void* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return static_cast<double>(value);
}
}  // namespace

double loadNumber(const std::string& type, const void* source) {
  if (type == "float") return loadAs<float>(source);
  if (type == "half")
    return static_cast<double>(fromHalfBits(static_cast<std::uint16_t>(loadAs<std::uint16_t>(source))));
  if (type == "bool") return loadAs<std::uint8_t>(source) != 0;
  if (type == "int") return loadAs<std::int32_t>(source);
  if (type == "unsigned int") return loadAs<std::uint32_t>(source);
  if (type == "short") return loadAs<std::int16_t>(source);
  if (type == "unsigned short") return loadAs<std::uint16_t>(source);
  if (type == "unsigned char") return loadAs<std::uint8_t>(source);
  if (type == "char" || type == "signed char") return loadAs<std::int8_t>(source);
  throw poplar::type_error("host SDK: no number of type " + type);
}

void Variable::map(std::size_t begin, std::size_t end, unsigned tile) {
  if (begin >= end) return;
  auto it = tiles.lower_bound(begin);
  if (it != tiles.begin()) {
    auto before = std::prev(it);
    const auto [before_end, before_tile] = before->second;
    if (before_end > begin) {
      before->second.first = begin;
      if (before_end > end) tiles.emplace(end, std::make_pair(before_end, before_tile));
    }
  }
  it = tiles.lower_bound(begin);
  while (it != tiles.end() && it->first < end) {
    const auto [next_end, next_tile] = it->second;
    it = tiles.erase(it);
    if (next_end > end) tiles.emplace(end, std::make_pair(next_end, next_tile));
  }
  auto where = tiles.emplace(begin, std::make_pair(end, tile)).first;
  // Adjacent blocks on one tile are one block.
  auto after = std::next(where);
  if (after != tiles.end() && after->first == end && after->second.second == tile) {
    where->second.first = after->second.first;
    tiles.erase(after);
  }
  if (where != tiles.begin()) {
    auto before = std::prev(where);
    if (before->second.first == begin && before->second.second == tile) {
      before->second.first = where->second.first;
      tiles.erase(where);
    }
  }
}

unsigned Variable::tileOf(std::size_t element) const {
  unsigned tile = kUnmapped;
  eachTile(element, element + 1, [&](std::size_t, std::size_t, unsigned t) { tile = t; });
  return tile;
}

std::size_t Variable::blockStart(std::size_t element) const {
  auto it = tiles.upper_bound(element);
  return it == tiles.begin() ? 0 : std::prev(it)->first;
}

const HostSdkField& GraphState::field(const poplar::FieldRef& ref, std::size_t& index) const {
  const VertexNode& vertex = vertices.at(ref.hostVertex());
  for (index = 0; index < vertex.type->field_count; ++index) {
    if (ref.hostField() == vertex.type->fields[index].name) return vertex.type->fields[index];
  }
  throw poplar::vertex_field_error("vertex " + vertex.type_name + " has no field '" + ref.hostField() + "'");
}

void GraphState::requireMapped(const poplar::Tensor& tensor, const std::string& what) const {
  for (const auto& piece : tensor.pieces()) {
    const Variable& v = variable(piece.variable);
    v.eachTile(piece.begin, piece.begin + piece.size, [&](std::size_t begin, std::size_t end, unsigned tile) {
      if (tile != kUnmapped) return;
      std::ostringstream out;
      out << what << ": elements [" << begin << "," << end << ") of variable '" << v.name
          << "' are not mapped to a tile; call setTileMapping (constants too)";
      throw poplar::invalid_tile_mapping(out.str());
    });
  }
}

void GraphState::fill(Variable& v, const double* values, std::size_t count, std::size_t begin, std::size_t size) {
  const std::string type = v.type.toString();
  const unsigned bytes = v.type.hostSize();
  for (std::size_t i = 0; i < size; ++i)
    storeNumber(type, values[count == 1 ? 0 : i], v.data.data() + (begin + i) * bytes);
}

void GraphState::read(const poplar::Tensor& tensor, void* destination) const {
  auto* out = static_cast<std::uint8_t*>(destination);
  for (const auto& piece : tensor.pieces()) {
    const Variable& v = variable(piece.variable);
    const std::size_t bytes = v.type.hostSize();
    std::memcpy(out, v.data.data() + piece.begin * bytes, piece.size * bytes);
    out += piece.size * bytes;
  }
}

void GraphState::write(const poplar::Tensor& tensor, const void* source) {
  const auto* in = static_cast<const std::uint8_t*>(source);
  for (const auto& piece : tensor.pieces()) {
    Variable& v = variable(piece.variable);
    const std::size_t bytes = v.type.hostSize();
    std::memcpy(v.data.data() + piece.begin * bytes, in, piece.size * bytes);
    in += piece.size * bytes;
  }
}

void addTensorBytes(const GraphState& graph, const poplar::Tensor& tensor, std::map<unsigned, std::size_t>& per_tile) {
  for (const auto& piece : tensor.pieces()) {
    const Variable& v = graph.variable(piece.variable);
    v.eachTile(piece.begin, piece.begin + piece.size, [&](std::size_t begin, std::size_t end, unsigned tile) {
      // Blocks start on 8 bytes.
      if (tile != kUnmapped) per_tile[tile] += ((end - begin) * v.type.hostSize() + 7) / 8 * 8;
    });
  }
}

}  // namespace host_sdk

namespace poplar {

using host_sdk::GraphState;
using host_sdk::Settings;
using host_sdk::Variable;

unsigned Target::getTypeSize(const Type& type) const { return type.hostSize(); }
unsigned Target::getVectorWidth(const Type& type) const { return type.hostSize() ? 8 / type.hostSize() : 1; }

Target Target::hostModel(TargetType type, unsigned tiles, unsigned workers, unsigned bytes_per_tile) {
  Target t;
  t.type_ = type;
  t.tiles_ = tiles;
  t.workers_ = workers;
  t.bytes_per_tile_ = bytes_per_tile;
  return t;
}

Graph::Graph(const Target& target) : state_(std::make_unique<GraphState>(target)) {}
Graph::~Graph() = default;

const Target& Graph::getTarget() const { return state_->target; }

bool Graph::addCodelets(StringRef src, CodeletFileType, StringRef compileFlags, StringRef targetName) {
  const std::string path = src;
  if (!targetName.empty() && targetName.str() != "cpu" && targetName.str().rfind("ipu", 0) != 0) {
    throw poplar_error("addCodelets: unknown target '" + targetName.str() + "'");
  }
  if (state_->codelets.count(path)) return false;
  if (access(path.c_str(), R_OK) != 0) throw poplar_error("addCodelets: cannot read codelet file '" + path + "'");
  const std::string library = host_sdk::compiledCodelets(path, compileFlags);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw poplar_error(std::string("addCodelets: ") + dlerror());
  using List = const HostSdkVertex* (*)(unsigned long*);
  auto list = reinterpret_cast<List>(dlsym(handle, "host_sdk_vertices"));
  if (!list) throw poplar_error(std::string("addCodelets: ") + dlerror());
  unsigned long count = 0;
  const HostSdkVertex* types = list(&count);
  for (unsigned long i = 0; i < count; ++i) state_->vertex_types[types[i].name] = &types[i];
  state_->codelets[path] = library;
  return true;
}

Tensor Graph::addVariable(const Type& type, ArrayRef<std::size_t> shape, const DebugContext& debugContext) {
  return addVariable(type, shape, VariableMappingMethod::NONE, debugContext);
}

Tensor Graph::addVariable(const Type& type, ArrayRef<std::size_t> shape, VariableMappingMethod mappingMethod,
                          const DebugContext& debugContext) {
  if (type.hostSize() == 0) throw type_error("addVariable of type " + type.toString());
  if (type.hostSize() == 8) throw type_error("addVariable: an IPU has no arithmetic on " + type.toString());
  std::size_t n = 1;
  for (auto d : shape) n *= d;
  auto v = std::make_unique<Variable>();
  v->id = static_cast<unsigned>(state_->variables.size());
  v->type = type;
  v->name = debugContext.getPathName();
  v->size = n;
  v->data.assign(n * type.hostSize(), 0xff);
  const unsigned id = v->id;
  state_->variables.push_back(std::move(v));
  std::vector<Tensor::Piece> pieces;
  if (n) pieces.push_back({id, 0, n});
  Tensor t(this, type, shape.cloneAsVector(), std::move(pieces));
  if (mappingMethod == VariableMappingMethod::LINEAR && n) {
    const std::size_t tiles = state_->target.getNumTiles();
    const std::size_t per_tile = (n + tiles - 1) / tiles;
    for (std::size_t begin = 0, tile = 0; begin < n; begin += per_tile, ++tile) {
      state_->variable(id).map(begin, std::min(n, begin + per_tile), static_cast<unsigned>(tile));
    }
  }
  return t;
}

Tensor Graph::addConstantValues(const Type& type, ArrayRef<std::size_t> shape, const double* values, std::size_t count,
                                const DebugContext& debugContext) {
  Tensor t = addVariable(type, shape, debugContext);
  if (count != 1 && count != t.numElements()) {
    throw poplar_error("addConstant: " + std::to_string(count) + " values for shape " + t.shapeToString());
  }
  if (t.numElements()) {
    Variable& v = *state_->variables.back();
    v.constant = true;
    state_->fill(v, values, count, 0, v.size);
  }
  return t;
}

Tensor Graph::clone(const Tensor& t, const DebugContext& debugContext, TensorCloneMethod method) {
  return clone(t.elementType(), t, debugContext, method);
}

Tensor Graph::clone(const Type& type, const Tensor& t, const DebugContext& debugContext, TensorCloneMethod) {
  Tensor copy = addVariable(type, t.shape(), debugContext);
  if (t.numElements() == 0) return copy;
  Variable& v = *state_->variables.back();
  std::size_t start = 0;
  for (const auto& piece : t.pieces()) {
    const Variable& from = state_->variable(piece.variable);
    from.eachTile(piece.begin, piece.begin + piece.size, [&](std::size_t begin, std::size_t end, unsigned tile) {
      const std::size_t offset = start + begin - piece.begin;
      if (tile != host_sdk::kUnmapped) v.map(offset, offset + end - begin, tile);
    });
    start += piece.size;
  }
  return copy;
}

ComputeSet Graph::addComputeSet(const DebugContext& debugContext) {
  state_->compute_sets.emplace_back();
  state_->compute_sets.back().name = debugContext.getPathName();
  return ComputeSet(static_cast<unsigned>(state_->compute_sets.size() - 1));
}

VertexRef Graph::addVertex(ComputeSet cs, StringRef vertexType) {
  auto found = state_->vertex_types.find(vertexType);
  if (found == state_->vertex_types.end()) {
    std::string known;
    for (const auto& entry : state_->vertex_types) known += "\n  " + entry.first;
    throw poplar_error("Vertex type '" + vertexType.str() +
                       "' not found; the codelets added define:" + (known.empty() ? " nothing" : known));
  }
  host_sdk::VertexNode vertex;
  vertex.type = found->second;
  vertex.type_name = vertexType;
  vertex.compute_set = cs.getId();
  vertex.edges.resize(vertex.type->field_count);
  state_->vertices.push_back(std::move(vertex));
  const auto id = static_cast<unsigned>(state_->vertices.size() - 1);
  state_->compute_sets.at(cs.getId()).vertices.push_back(id);
  return VertexRef(id);
}

VertexRef Graph::addVertex(ComputeSet cs, StringRef vertexType, ArrayRef<ConnectionDesc> connections) {
  VertexRef v = addVertex(cs, vertexType);
  for (const auto& connection : connections) {
    if (connection.is_constant) {
      connectConstant(v[connection.field], connection.constant);
    } else if (connection.list) {
      connect(v[connection.field], ArrayRef<Tensor>(connection.tensors));
    } else {
      connect(v[connection.field], connection.tensors.front());
    }
  }
  return v;
}

namespace {

std::string fieldName(const GraphState& state, const FieldRef& ref) {
  return "field '" + ref.hostField() + "' of " + state.vertices.at(ref.hostVertex()).type_name;
}

void checkConnection(const HostSdkField& field, const Tensor& tensor, unsigned rank, const std::string& name) {
  if (!tensor.valid()) throw graph_connection_error(name + " connected to a tensor that was never made");
  if (tensor.elementType().toString() != field.type) {
    throw graph_connection_error(name + " is of type " + field.type + " and was connected to a tensor of type " +
                                 tensor.elementType().toString());
  }
  if (tensor.rank() != rank) {
    throw graph_connection_error(name + " takes a tensor of rank " + std::to_string(rank) + ", got shape " +
                                 tensor.shapeToString());
  }
  if (field.layout == kShortSpan && tensor.numElements() > 2047) {
    throw graph_connection_error(name + " is a SHORT_SPAN, whose length has 11 bits: " +
                                 std::to_string(tensor.numElements()) + " elements do not fit");
  }
  if (tensor.numElements() > 0xffffffffull) throw graph_connection_error(name + ": more elements than unsigned holds");
}

}  // namespace

void Graph::connect(FieldRef ref, const Tensor& tensor) {
  std::size_t index = 0;
  const HostSdkField& field = state_->field(ref, index);
  const std::string name = fieldName(*state_, ref);
  if ((field.kind == kEdgeVectorList && tensor.rank() == 2) || (field.kind == kEdgeList && tensor.rank() == 1)) {
    std::vector<Tensor> rows;
    for (std::size_t i = 0; i < tensor.dim(0); ++i) rows.push_back(tensor[i]);
    return connect(ref, ArrayRef<Tensor>(rows));
  }
  if (field.kind != kEdge && field.kind != kEdgeVector) {
    throw graph_connection_error(name + (field.access == kNone ? " is vertex state: use setInitialValue"
                                                               : " is a list: connect a vector of tensors"));
  }
  checkConnection(field, tensor, field.kind == kEdge ? 0 : 1, name);
  auto& edge = state_->vertices.at(ref.hostVertex()).edges[index];
  edge.tensors = {tensor};
  edge.connected = true;
}

void Graph::connect(FieldRef ref, ArrayRef<Tensor> tensors) {
  std::size_t index = 0;
  const HostSdkField& field = state_->field(ref, index);
  const std::string name = fieldName(*state_, ref);
  if (field.kind != kEdgeList && field.kind != kEdgeVectorList) {
    throw graph_connection_error(name + " is not a list of edges: connect one tensor (concat the parts)");
  }
  if (field.list_layout == kShortSpan && tensors.size() > 2047) {
    throw graph_connection_error(name + " is a SHORT_SPAN list, whose length has 11 bits");
  }
  for (const auto& tensor : tensors) checkConnection(field, tensor, field.kind == kEdgeList ? 0 : 1, name);
  auto& edge = state_->vertices.at(ref.hostVertex()).edges[index];
  edge.tensors = tensors.cloneAsVector();
  edge.connected = true;
}

void Graph::connectConstant(FieldRef ref, double value) {
  std::size_t index = 0;
  const HostSdkField& field = state_->field(ref, index);
  if (field.access != kInput || field.kind != kEdge) {
    throw graph_connection_error(
        fieldName(*state_, ref) +
        " is not a scalar Input: a constant cannot be connected; use setInitialValue for state");
  }
  const std::string wanted = field.type;
  const Type types[] = {FLOAT, HALF, INT, UNSIGNED_INT, SHORT, UNSIGNED_SHORT, CHAR, SIGNED_CHAR, UNSIGNED_CHAR, BOOL};
  for (const auto& type : types) {
    if (type.toString() != wanted) continue;
    Tensor constant = addConstantValues(type, {}, &value, 1, "<const>");
    const auto& vertex = state_->vertices.at(ref.hostVertex());
    // It lives on the vertex's tile; the vertex may not have one yet.
    setTileMapping(constant, vertex.tile == host_sdk::kUnmapped ? 0 : vertex.tile);
    connect(ref, constant);
  }
}

void Graph::setFieldValues(FieldRef ref, const double* values, std::size_t count, bool list) {
  std::size_t index = 0;
  const HostSdkField& field = state_->field(ref, index);
  const std::string name = fieldName(*state_, ref);
  if (field.kind != (list ? kStateVector : kState)) {
    throw vertex_field_error(name + (field.access != kNone ? " is an edge: connect a tensor to it"
                                     : list                ? " holds one number"
                                                           : " is a vector: give it a list"));
  }
  std::uint64_t scratch = 0;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      host_sdk::storeNumber(field.type, values[i], &scratch);
    } catch (const vertex_field_error& e) {
      throw vertex_field_error(name + ": " + e.what());
    }
  }
  auto& edge = state_->vertices.at(ref.hostVertex()).edges[index];
  edge.values.assign(values, values + count);
  edge.has_values = true;
}

void Graph::setTensorValues(const Tensor& t, const double* values, std::size_t count) {
  if (count != 1 && count != t.numElements()) throw poplar_error("setInitialValue: one value or one per element");
  std::size_t start = 0;
  for (const auto& piece : t.pieces()) {
    Variable& v = state_->variable(piece.variable);
    v.has_initial_value = true;
    state_->fill(v, count == 1 ? values : values + start, count, piece.begin, piece.size);
    start += piece.size;
  }
}

void Graph::setTileMapping(VertexRef v, unsigned tileNum) {
  if (tileNum >= state_->target.getNumTiles()) {
    throw invalid_tile_mapping("vertex mapped to tile " + std::to_string(tileNum) + " of " +
                               std::to_string(state_->target.getNumTiles()));
  }
  state_->vertices.at(v.getId()).tile = tileNum;
}

void Graph::setTileMapping(const Tensor& t, unsigned tileNum) {
  if (tileNum >= state_->target.getNumTiles()) {
    throw invalid_tile_mapping("tensor mapped to tile " + std::to_string(tileNum) + " of " +
                               std::to_string(state_->target.getNumTiles()));
  }
  for (const auto& piece : t.pieces()) {
    state_->variable(piece.variable).map(piece.begin, piece.begin + piece.size, tileNum);
  }
}

void Graph::setTileMapping(const Tensor& t, const TileToTensorMapping& mapping) {
  std::vector<Interval> covered;
  const Tensor flat = t.flatten();
  for (unsigned tile = 0; tile < mapping.size(); ++tile) {
    for (const auto& interval : mapping[tile]) {
      setTileMapping(flat.slice(interval), tile);
      covered.push_back(interval);
    }
  }
  std::sort(covered.begin(), covered.end());
  std::size_t end = 0;
  for (const auto& interval : covered) {
    if (interval.begin() < end) throw invalid_tile_mapping("setTileMapping: elements mapped to two tiles");
    end = interval.end();
  }
}

Graph::TileToTensorMapping Graph::getTileMapping(const Tensor& t, bool requireComplete, bool) const {
  if (requireComplete) state_->requireMapped(t, "getTileMapping");
  bool complete = false;
  return getTileMapping(t, &complete);
}

Graph::TileToTensorMapping Graph::getTileMapping(const Tensor& t, bool* isComplete, bool) const {
  TileToTensorMapping mapping(state_->target.getNumTiles());
  *isComplete = true;
  std::size_t start = 0;
  for (const auto& piece : t.pieces()) {
    const Variable& v = state_->variable(piece.variable);
    v.eachTile(piece.begin, piece.begin + piece.size, [&](std::size_t begin, std::size_t end, unsigned tile) {
      if (tile == host_sdk::kUnmapped) {
        *isComplete = false;
        return;
      }
      const std::size_t offset = start + begin - piece.begin;
      auto& intervals = mapping[tile];
      if (!intervals.empty() && intervals.back().end() == offset) {
        intervals.back() = Interval(intervals.back().begin(), offset + end - begin);
      } else {
        intervals.emplace_back(offset, offset + end - begin);
      }
    });
    start += piece.size;
  }
  return mapping;
}

std::vector<std::vector<Interval>> Graph::getSortedContiguousRegions(const Tensor& t, ArrayRef<Interval> regions,
                                                                     bool removeAliasedIntervals,
                                                                     std::vector<std::size_t>* aliases) const {
  struct Part {
    unsigned variable;
    std::size_t begin;
    Interval interval;
  };
  std::vector<Part> parts;
  const Tensor flat = t.flatten();
  for (const auto& region : regions) {
    std::size_t start = region.begin();
    for (const auto& piece : flat.take(region.begin(), region.end())) {
      parts.push_back({piece.variable, piece.begin, Interval(start, start + piece.size)});
      start += piece.size;
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.variable < b.variable || (a.variable == b.variable && a.begin < b.begin);
  });
  std::vector<std::vector<Interval>> out;
  std::size_t end = 0;
  unsigned variable = host_sdk::kUnmapped;
  for (const auto& part : parts) {
    const bool overlaps = part.variable == variable && part.begin < end;
    if (overlaps && removeAliasedIntervals) {
      if (aliases) aliases->push_back(part.interval.begin());
      continue;
    }
    if (part.variable == variable && part.begin == end) {
      auto& last = out.back().back();
      if (last.end() == part.interval.begin()) {
        last = Interval(last.begin(), part.interval.end());
      } else {
        out.back().push_back(part.interval);
      }
    } else {
      out.push_back({part.interval});
    }
    variable = part.variable;
    end = part.begin + part.interval.size();
  }
  return out;
}

void Graph::reorderToSimplify(Tensor* t, ArrayRef<Tensor*> ts, bool) const {
  if (t->rank() != 1) throw poplar_error("reorderToSimplify takes tensors of rank 1");
  for (const Tensor* other : ts) {
    if (other->rank() != 1 || other->numElements() != t->numElements()) {
      throw poplar_error("reorderToSimplify takes tensors of rank 1 with the same number of elements");
    }
  }
  const std::vector<Interval> all = {Interval(0, t->numElements())};
  std::vector<Interval> order;
  for (const auto& group : getSortedContiguousRegions(*t, all)) order.insert(order.end(), group.begin(), group.end());
  if (order.size() <= 1) return;
  *t = concat(t->slices(order));
  for (Tensor* other : ts) *other = concat(other->slices(order));
}

void Graph::setPerfEstimate(const VertexRef& v, std::uint64_t, std::uint64_t) {
  state_->vertices.at(v.getId()).has_perf_estimate = true;
}

namespace program {

std::shared_ptr<Program::Node> Program::make(Node::Kind kind, const DebugContext& debugContext) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->name = debugContext.getPathName();
  return node;
}

Copy::Copy(Tensor src, Tensor dst, bool, const DebugContext& debugContext)
    : Program(make(Node::Kind::Copy, debugContext)) {
  if (src.shape() != dst.shape()) {
    throw poplar_error("Copy of shape " + src.shapeToString() + " to " + dst.shapeToString());
  }
  if (src.elementType() != dst.elementType()) {
    throw type_error("Copy of " + src.elementType().toString() + " to " + dst.elementType().toString());
  }
  if (!dst.isParallelWriteable()) throw poplar_error("Copy to a constant or to a tensor with aliases");
  node_->source = std::move(src);
  node_->destination = std::move(dst);
}

}  // namespace program
}  // namespace poplar
