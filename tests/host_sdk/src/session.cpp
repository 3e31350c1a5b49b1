// Host model of PopART, not PopART: see tests/host_sdk/README.md.
// A session with the ops of one model, and the C interface through which the Python module drives it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <popart/ir.hpp>
#include <popart/opmanager.hpp>
#include <popart/opserialiser.hpp>
#include <popart/popx/devicex.hpp>
#include <popart/popx/opx.hpp>
#include <popart/popx/opxmanager.hpp>
#include <popart/region.hpp>
#include <popart/tensorindex.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <poputil/TileMapping.hpp>
#include <set>
#include <sstream>

#include "runtime.hpp"

namespace host_sdk {
namespace {

using popart::Op;
using popart::TensorId;

struct GrownOp {
  Op* op = nullptr;
  bool is_grad = false;
  std::unique_ptr<popart::popx::Opx> opx;
  poplar::program::Sequence program;
  std::vector<std::pair<int, TensorId>> inputs;
  std::vector<std::pair<int, TensorId>> outputs;
  std::size_t first_variable = 0, last_variable = 0;
  std::size_t first_set = 0, last_set = 0;
  std::map<unsigned, std::size_t> bytes;  // per tile while the op runs
};

poplar::Target makeTarget() {
  const Settings& s = Settings::get();
  const unsigned workers = s.target == poplar::TargetType::CPU ? 1 : 6;
  return poplar::Target::hostModel(s.target, s.tiles, workers, s.bytes_per_tile);
}

class Session {
 public:
  explicit Session(bool training, bool outlining) : devicex_(ir_, makeTarget()) {
    ir_.mode = training ? popart::Ir::ExecutionMode::Training : popart::Ir::ExecutionMode::Inference;
    ir_.getSessionOptions().enableOutlining = outlining;
  }

  void addTensor(const TensorId& id, popart::DataType type, const popart::Shape& shape) {
    for (auto d : shape) {
      if (d == 0) throw popart::error("tensor {} has no elements: PopTorch supports no zero-size tensors", id);
    }
    graph().addTensor(id).info.set(type, shape);
  }

  int addOp(const std::string& domain, const std::string& name, int version, const std::vector<TensorId>& inputs,
            const std::vector<TensorId>& outputs, const popart::Attributes& attributes) {
    const auto opset = opsets_.emplace(domain, version).first;
    if (opset->second != version) {
      throw popart::error("Invalid opset {} used to add an operation. Opset for domain {} already defined as {}",
                          version, domain, opset->second);
    }
    auto op = popart::OpManager::createOp(domain, name, version, graph(), name, attributes, inputs, outputs);
    if (!op) throw popart::error("No class for {}.{}:0", domain, name);
    op->hostAttributes = attributes.hostDescription();
    Op& added = graph().moveIntoGraph(std::move(op));
    std::map<int, TensorId> in;
    for (std::size_t i = 0; i < inputs.size(); ++i) in[static_cast<int>(i)] = inputs[i];
    graph().connectInputs(added, in);
    std::vector<std::pair<int, TensorId>> out;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      added.createAndConnectOutTensor(static_cast<int>(i), outputs[i]);
      out.emplace_back(static_cast<int>(i), outputs[i]);
    }
    return finishOp(added, std::move(out), false);
  }

  /// Grow the gradient ops of an op, given which of its outputs have a gradient; returns their indices.
  std::vector<int> growGradients(int index, const std::vector<bool>& has_gradient) {
    Op& op = *grown_.at(static_cast<std::size_t>(index))->op;
    std::vector<int> result;
    auto made = op.getGradOps();
    for (auto& unique : made) {
      unique->hostAttributes = op.hostAttributes;
      Op& grad = graph().moveIntoGraph(std::move(unique));
      std::map<int, TensorId> in;
      for (const auto& mapper : grad.gradInputInfo()) in[mapper.iGrad] = gradInput(op, grad, mapper, has_gradient);
      graph().connectInputs(grad, in);
      std::vector<std::pair<int, TensorId>> out;
      for (const auto& entry : grad.gradOutToNonGradIn()) {
        if (!op.hasInput(entry.second)) continue;
        const TensorId id = popart::logging::format("Gradient___{}_{}_{}", op.id, entry.second, grad.id);
        grad.createAndConnectOutTensor(entry.first, id);
        out.emplace_back(entry.first, id);
      }
      const int at = finishOp(grad, std::move(out), true);
      for (const auto& entry : grad.gradOutToNonGradIn()) {
        if (!op.hasInput(entry.second)) continue;
        const auto& info = grad.outInfo(entry.first);
        const auto& wanted = op.inInfo(entry.second);
        if (info.shape() != wanted.shape() || info.dataType() != wanted.dataType()) {
          throw popart::error("{}: gradient of input {} is {}, the input is {}", grad.debugName(), entry.second, info,
                              wanted);
        }
      }
      result.push_back(at);
    }
    return result;
  }

  void compile() {
    for (auto& grown : grown_) growOpx(*grown);
    for (auto& grown : grown_) account(*grown);
    checkOutlining();
    checkMemory();
  }

  void run(int index, const std::map<TensorId, const void*>& inputs, const std::map<TensorId, void*>& outputs) {
    GrownOp& grown = *grown_.at(static_cast<std::size_t>(index));
    GraphState& state = devicex_.graph().host();
    for (std::size_t v = grown.first_variable; v < grown.last_variable; ++v) {
      Variable& variable = *state.variables[v];
      // A constant or an initial value is loaded once, with the program.
      if (!variable.constant && !variable.has_initial_value) {
        std::fill(variable.data.begin(), variable.data.end(), std::uint8_t(0xff));
      }
    }
    for (const auto& input : inputs) state.write(devicex_.get(input.first), input.second);
    state.run(grown.program);
    for (const auto& entry : grown.inputs) checkInput(grown, entry.first, inputs.at(entry.second));
    for (const auto& output : outputs) state.read(devicex_.get(output.first), output.second);
  }

  popart::TensorInfo& info(const TensorId& id) { return graph().getTensor(id).info; }
  const GrownOp& grown(int index) const { return *grown_.at(static_cast<std::size_t>(index)); }

  /// What the executable cache would hash: all ops with their attributes, and (beside it) the codelets.
  std::string identity() const {
    std::string out;
    for (const auto& grown : grown_) {
      popart::OpEquivIdCreator creator(grown->op);
      grown->op->appendAttributes(creator);
      out += creator.str() + "\n";
    }
    return out;
  }
  std::string codelets() {
    std::set<std::string> libraries;
    for (const auto& entry : devicex_.graph().host().codelets) libraries.insert(entry.second);
    std::string out;
    for (const auto& library : libraries) out += library.substr(library.rfind('/') + 1) + "\n";
    return out;
  }

  std::string report() {
    const GraphState& state = devicex_.graph().host();
    std::ostringstream out;
    out << "{\"tiles\":" << state.target.getNumTiles() << ",\"bytes_per_tile\":" << state.target.getBytesPerTile()
        << ",\"peak_tile_bytes\":" << peak_ << ",\"ops\":[";
    for (std::size_t i = 0; i < grown_.size(); ++i) {
      const GrownOp& grown = *grown_[i];
      std::size_t vertices = 0, exchanged = 0, worst = 0;
      for (std::size_t s = grown.first_set; s < grown.last_set; ++s) {
        vertices += state.compute_sets[s].vertices.size();
        exchanged += state.compute_sets[s].load.exchanged;
      }
      for (const auto& tile : grown.bytes) worst = std::max(worst, tile.second);
      out << (i ? "," : "") << "{\"op\":\"" << grown.op->opid
          << "\",\"gradient\":" << (grown.is_grad ? "true" : "false")
          << ",\"compute_sets\":" << grown.last_set - grown.first_set << ",\"vertices\":" << vertices
          << ",\"tiles_used\":" << grown.bytes.size() << ",\"max_tile_bytes\":" << worst
          << ",\"exchanged_bytes\":" << exchanged << "}";
    }
    out << "]}";
    return out.str();
  }

 private:
  popart::Graph& graph() { return ir_.getMainGraph(); }

  int finishOp(Op& op, std::vector<std::pair<int, TensorId>> outputs, bool is_grad) {
    op.setup();
    std::vector<popart::TensorInfo> first;
    for (const auto& output : outputs) {
      if (!op.outInfo(output.first).isSet()) {
        throw popart::error("{}: setup() did not set outInfo({})", op.debugName(), output.first);
      }
      first.push_back(op.outInfo(output.first));
    }
    // PopART may call it again, after transformations of the graph.
    op.setup();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (op.outInfo(outputs[i].first) != first[i]) {
        throw popart::error("{}: a second setup() gives output {} another shape or type", op.debugName(), i);
      }
    }
    auto grown = std::make_unique<GrownOp>();
    grown->op = &op;
    grown->is_grad = is_grad;
    grown->outputs = std::move(outputs);
    for (const auto& entry : op.input->tensorMap()) grown->inputs.emplace_back(entry.first, entry.second->id);
    grown_.push_back(std::move(grown));
    return static_cast<int>(grown_.size() - 1);
  }

  TensorId gradInput(Op& op, Op& grad, const popart::GradInOutMapper& mapper, const std::vector<bool>& has_gradient) {
    using popart::GradOpInType;
    const int i = mapper.iNonGrad;
    if (mapper.type == GradOpInType::In) {
      if (op.hasInput(i)) return op.inId(i);
      if (op.optionalInputs().count(i)) return TensorId();
      throw popart::error(
          "Invalid configuration of gradOp {}. nonGradOp ({}) INPUT {} is not marked as optional, but is not defined",
          grad.debugName(), op.debugName(), i);
    }
    if (!op.hasOutput(i)) {
      throw popart::error("Invalid configuration of gradOp {}. nonGradOp ({}) OUTPUT {} is not defined ",
                          grad.debugName(), op.debugName(), i);
    }
    if (mapper.type == GradOpInType::Out) return op.outId(i);
    if (!has_gradient.at(static_cast<std::size_t>(i))) return TensorId();
    const TensorId id = "Gradient___" + op.outId(i);
    if (!graph().hasTensor(id)) graph().addTensor(id).info = op.outInfo(i);
    return id;
  }

  void growOpx(GrownOp& grown) {
    GraphState& state = devicex_.graph().host();
    for (const auto& entry : grown.inputs) {
      if (devicex_.has(entry.second)) continue;
      const auto& info = graph().getTensor(entry.second).info;
      poplar::Tensor t = devicex_.graph().addVariable(popart::popx::popType(info), info.shape_szt(), entry.second);
      // An op's default input is laid out linearly by PopART.
      poputil::mapTensorLinearly(devicex_.graph(), t);
      state.variables.back()->external = true;
      devicex_.insert(entry.second, t);
    }
    grown.first_variable = state.variables.size();
    grown.first_set = state.compute_sets.size();
    grown.opx = popart::popx::OpxManager::createOpx(grown.op, &devicex_);
    grown.opx->grow(grown.program);
    grown.last_variable = state.variables.size();
    grown.last_set = state.compute_sets.size();
    std::set<unsigned> output_variables;
    for (const auto& output : grown.outputs) {
      if (!devicex_.has(output.second)) {
        throw popart::error("{}: grow() did not set output {}", grown.op->debugName(), output.first);
      }
      const poplar::Tensor& tensor = devicex_.get(output.second);
      state.requireMapped(tensor, grown.op->debugName() + ", output " + std::to_string(output.first));
      checkAliases(grown, output.first, tensor);
      for (const auto& other : grown.outputs) {
        if (other.first < output.first && tensor.intersectsWith(devicex_.get(other.second))) {
          throw popart::error("{}: outputs {} and {} share memory", grown.op->debugName(), other.first, output.first);
        }
      }
    }
    for (std::size_t s = grown.first_set; s < grown.last_set; ++s) state.plan(state.compute_sets[s]);
  }

  void checkAliases(const GrownOp& grown, int output, const poplar::Tensor& tensor) {
    for (const auto& input : grown.inputs) {
      if (!tensor.intersectsWith(devicex_.get(input.second)) || grown.op->doesAlias(input.first, output)) continue;
      throw popart::error(
          "Op {} claims input {} -> output {} do not contain aliases, but the Poplar tensors disagree. Return a fresh "
          "tensor, or declare aliases().",
          grown.op->debugName(), input.first, output);
    }
  }

  void checkInput(const GrownOp& grown, int index, const void* before) {
    const poplar::Tensor& tensor = devicex_.get(grown.op->inId(index));
    std::vector<std::uint8_t> now(tensor.numElements() * tensor.elementType().hostSize());
    devicex_.graph().host().read(tensor, now.data());
    if (std::memcmp(now.data(), before, now.size()) != 0 && !grown.op->modifiesIndex(index)) {
      throw popart::error(
          "Op {} claims input {} is not modified, but its program changed it. Declare modifies(), or "
          "write to a fresh tensor.",
          grown.op->debugName(), index);
    }
  }

  void account(GrownOp& grown) {
    GraphState& state = devicex_.graph().host();
    for (const auto& input : grown.inputs) addTensorBytes(state, devicex_.get(input.second), grown.bytes);
    for (std::size_t v = grown.first_variable; v < grown.last_variable; ++v) {
      const Variable& variable = *state.variables[v];
      variable.eachTile(0, variable.size, [&](std::size_t begin, std::size_t end, unsigned tile) {
        if (tile != kUnmapped) grown.bytes[tile] += ((end - begin) * variable.type.hostSize() + 7) / 8 * 8;
      });
    }
    std::map<unsigned, std::size_t> scratch;
    for (std::size_t s = grown.first_set; s < grown.last_set; ++s) {
      const TileLoad& load = state.compute_sets[s].load;
      for (const auto& tile : load.state) grown.bytes[tile.first] += tile.second;
      for (const auto& tile : load.scratch) scratch[tile.first] = std::max(scratch[tile.first], tile.second);
    }
    for (const auto& tile : scratch) grown.bytes[tile.first] += tile.second;
  }

  void checkMemory() {
    GraphState& state = devicex_.graph().host();
    std::set<TensorId> kept;
    for (const auto& grown : grown_) {
      if (!grown->is_grad) continue;
      for (const auto& input : grown->inputs) {
        if (input.second.rfind("Gradient___", 0) != 0) kept.insert(input.second);
      }
    }
    std::map<unsigned, std::size_t> kept_bytes;
    for (const auto& id : kept) addTensorBytes(state, devicex_.get(id), kept_bytes);
    const Settings& settings = Settings::get();
    const auto limit = static_cast<std::size_t>(state.target.getBytesPerTile() * (1 - settings.memory_margin));
    peak_ = 0;
    for (const auto& grown : grown_) {
      auto live = kept_bytes;
      std::map<unsigned, std::size_t> counted_twice;
      for (const auto* list : {&grown->inputs, &grown->outputs}) {
        for (const auto& entry : *list) {
          if (kept.count(entry.second)) addTensorBytes(state, devicex_.get(entry.second), counted_twice);
        }
      }
      for (const auto& tile : grown->bytes) live[tile.first] += tile.second;
      for (const auto& tile : counted_twice) live[tile.first] -= std::min(live[tile.first], tile.second);
      for (const auto& tile : live) {
        peak_ = std::max(peak_, tile.second);
        if (tile.second <= limit) continue;
        std::ostringstream out;
        out << "Out of memory on tile " << tile.first << ": " << grown->op->opid << " needs " << tile.second
            << " bytes, of them " << kept_bytes[tile.first] << " kept for the gradients; there are "
            << state.target.getBytesPerTile() << " less a margin of " << settings.memory_margin * 100
            << " % for code, stack and exchange, " << limit << " bytes";
        throw poplar::graph_memory_allocation_error(out.str());
      }
    }
    if (static_cast<double>(peak_) > settings.memory_warning * state.target.getBytesPerTile()) {
      notice("custom ops use " + std::to_string(peak_) + " of " + std::to_string(state.target.getBytesPerTile()) +
             " bytes of a tile");
    }
  }

  void checkOutlining() const {
    if (!ir_.getSessionOptions().enableOutlining) return;
    std::map<std::string, const Op*> seen;
    for (const auto& grown : grown_) {
      if (!grown->op->isOutlineable()) continue;
      const auto inserted = seen.emplace(grown->op->getSubgraphEquivId(), grown->op);
      const Op& first = *inserted.first->second;
      if (!inserted.second && first.hostAttributes != grown->op->hostAttributes) {
        throw popart::error(
            "{}: the outliner takes this op, with attributes {}, for one with {}, and runs that instead. Append every "
            "attribute in appendOutlineAttributes(), floats with all their digits.",
            grown->op->debugName(), grown->op->hostAttributes, first.hostAttributes);
      }
    }
  }

  popart::Ir ir_;
  popart::popx::Devicex devicex_;
  std::map<std::string, int> opsets_;
  std::vector<std::unique_ptr<GrownOp>> grown_;
  std::size_t peak_ = 0;
};

thread_local std::string last_error;
thread_local std::string last_text;

template <class F>
int guarded(F&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    last_error = e.what();
    return 1;
  }
}

Session& session(void* handle) { return *static_cast<Session*>(handle); }
popart::Attributes& attributes(void* handle) { return *static_cast<popart::Attributes*>(handle); }

std::vector<TensorId> ids(const char* const* names, int count) { return std::vector<TensorId>(names, names + count); }

const char* copied(std::string text) {
  last_text = std::move(text);
  return last_text.c_str();
}

}  // namespace
}  // namespace host_sdk

using namespace host_sdk;

extern "C" {

const char* hs_last_error() { return last_error.c_str(); }

int hs_set(const char* key, const char* value) {
  return guarded([&] {
    Settings& s = Settings::get();
    const std::string k = key, v = value;
    if (k == "codelet_driver") {
      s.codelet_driver = v;
    } else if (k == "half") {
      s.half_saturates = v != "inf";
    } else if (k == "checks") {
      s.checks = v == "full" ? CheckLevel::Full : v == "light" ? CheckLevel::Light : CheckLevel::First;
    } else if (k == "tiles") {
      s.tiles = static_cast<unsigned>(std::stoul(v));
    } else if (k == "tile_bytes") {
      s.bytes_per_tile = static_cast<unsigned>(std::stoul(v));
    } else if (k == "memory_margin") {
      s.memory_margin = std::stod(v);
    } else if (k == "target") {
      s.target = v == "cpu" ? poplar::TargetType::CPU : poplar::TargetType::IPU_MODEL;
    } else {
      throw popart::error("host SDK has no setting {}", k);
    }
  });
}

void* hs_attributes_new() { return new popart::Attributes; }
void hs_attributes_delete(void* handle) { delete &attributes(handle); }

void hs_attributes_float(void* handle, const char* key, double value) {
  popart::Attributes::Value v;
  v.f = static_cast<float>(value);
  std::ostringstream out;
  out.precision(17);
  out << "float " << static_cast<double>(v.f);
  v.described = out.str();
  attributes(handle).hostSet(key, std::move(v));
}
void hs_attributes_int(void* handle, const char* key, std::int64_t value) {
  popart::Attributes::Value v;
  v.i = value;
  v.described = "int " + std::to_string(value);
  attributes(handle).hostSet(key, std::move(v));
}
void hs_attributes_string(void* handle, const char* key, const char* value) {
  popart::Attributes::Value v;
  v.s = value;
  v.described = "string " + v.s;
  attributes(handle).hostSet(key, std::move(v));
}
void hs_attributes_floats(void* handle, const char* key, const double* values, int count) {
  popart::Attributes::Value v;
  std::ostringstream out;
  out.precision(17);
  out << "floats";
  for (int i = 0; i < count; ++i) {
    v.floats.push_back(static_cast<float>(values[i]));
    out << " " << values[i];
  }
  v.described = out.str();
  attributes(handle).hostSet(key, std::move(v));
}
void hs_attributes_ints(void* handle, const char* key, const std::int64_t* values, int count) {
  popart::Attributes::Value v;
  v.ints.assign(values, values + count);
  v.described = "ints " + popart::logging::text(v.ints);
  attributes(handle).hostSet(key, std::move(v));
}
void hs_attributes_strings(void* handle, const char* key, const char* const* values, int count) {
  popart::Attributes::Value v;
  v.strings.assign(values, values + count);
  v.described = "strings " + popart::logging::text(v.strings);
  attributes(handle).hostSet(key, std::move(v));
}

void* hs_session_new(int training, int outlining) {
  void* handle = nullptr;
  guarded([&] { handle = new Session(training != 0, outlining != 0); });
  return handle;
}
void hs_session_delete(void* handle) { delete &session(handle); }

int hs_session_add_tensor(void* handle, const char* id, int type, const std::int64_t* shape, int rank) {
  return guarded(
      [&] { session(handle).addTensor(id, static_cast<popart::DataType>(type), popart::Shape(shape, shape + rank)); });
}

int hs_session_add_op(void* handle, const char* domain, const char* name, int version, const char* const* inputs,
                      int input_count, const char* const* outputs, int output_count, void* attrs, int* index) {
  return guarded([&] {
    *index = session(handle).addOp(domain, name, version, ids(inputs, input_count), ids(outputs, output_count),
                                   attributes(attrs));
  });
}

int hs_session_grow_gradients(void* handle, int op, const int* has_gradient, int output_count, int* indices,
                              int* index_count) {
  return guarded([&] {
    const std::vector<bool> present(has_gradient, has_gradient + output_count);
    const auto grown = session(handle).growGradients(op, present);
    if (static_cast<int>(grown.size()) > *index_count) throw popart::error("too many gradient ops");
    std::copy(grown.begin(), grown.end(), indices);
    *index_count = static_cast<int>(grown.size());
  });
}

int hs_session_compile(void* handle) {
  return guarded([&] { session(handle).compile(); });
}

/// "index:tensor" of each input of an op and, after a bar, of each output; for a gradient op each output also has the
/// index of the forward input, "index:tensor:input".
const char* hs_session_describe_op(void* handle, int op) {
  const auto& grown = session(handle).grown(op);
  std::ostringstream out;
  for (const auto& entry : grown.inputs) out << entry.first << ":" << entry.second << " ";
  out << "|";
  for (const auto& entry : grown.outputs) {
    out << " " << entry.first << ":" << entry.second;
    if (grown.is_grad) out << ":" << grown.op->gradOutToNonGradIn().at(entry.first);
  }
  return copied(out.str());
}

int hs_session_tensor_info(void* handle, const char* id, int* type, std::int64_t* shape, int* rank) {
  return guarded([&] {
    const auto& info = session(handle).info(id);
    if (info.rank() > *rank) throw popart::error("rank of {} is too large", id);
    *type = static_cast<int>(info.dataType());
    *rank = info.rank();
    std::copy(info.shape().begin(), info.shape().end(), shape);
  });
}

int hs_session_run(void* handle, int op, const char* const* input_ids, const void* const* inputs, int input_count,
                   const char* const* output_ids, void* const* outputs, int output_count) {
  return guarded([&] {
    std::map<TensorId, const void*> in;
    std::map<TensorId, void*> out;
    for (int i = 0; i < input_count; ++i) in[input_ids[i]] = inputs[i];
    for (int i = 0; i < output_count; ++i) out[output_ids[i]] = outputs[i];
    session(handle).run(op, in, out);
  });
}

const char* hs_session_report(void* handle) { return copied(session(handle).report()); }
const char* hs_session_identity(void* handle) { return copied(session(handle).identity()); }
const char* hs_session_codelets(void* handle) { return copied(session(handle).codelets()); }
void hs_notice(const char* text) { notice(text); }

}  // extern "C"
