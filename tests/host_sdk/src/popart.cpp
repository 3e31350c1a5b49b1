// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#include <algorithm>
#include <numeric>
#include <popart/alias/aliasmodel.hpp>
#include <popart/graph.hpp>
#include <popart/ir.hpp>
#include <popart/opmanager.hpp>
#include <popart/opserialiser.hpp>
#include <popart/popx/devicex.hpp>
#include <popart/popx/opx.hpp>
#include <popart/popx/opxmanager.hpp>
#include <popart/region.hpp>
#include <popart/shapeinference.hpp>
#include <popart/tensorindex.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace popart {
namespace logging {

std::string substitute(const std::string& pattern, const std::vector<std::string>& args) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '{' && i + 1 < pattern.size() && pattern[i + 1] == '}') {
      if (next >= args.size()) throw FormatError("Popart exception format error: " + pattern);
      out += args[next++];
      ++i;
    } else {
      out += pattern[i];
    }
  }
  return out;
}

}  // namespace logging

namespace {

struct TypeRow {
  DataType type;
  const char* name;
  int bytes;
};
const TypeRow kTypes[] = {
    {DataType::UINT8, "UINT8", 1},      {DataType::INT8, "INT8", 1},       {DataType::UINT16, "UINT16", 2},
    {DataType::INT16, "INT16", 2},      {DataType::INT32, "INT32", 4},     {DataType::INT64, "INT64", 8},
    {DataType::UINT32, "UINT32", 4},    {DataType::UINT64, "UINT64", 8},   {DataType::BOOL, "BOOL", 1},
    {DataType::FLOAT, "FLOAT", 4},      {DataType::FLOAT16, "FLOAT16", 2}, {DataType::DOUBLE, "DOUBLE", 8},
    {DataType::BFLOAT16, "BFLOAT16", 2}};

const TypeRow& row(DataType type) {
  for (const auto& r : kTypes) {
    if (r.type == type) return r;
  }
  throw internal_error("no such data type in the host model");
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const DataType& type) { return stream << row(type).name; }

TensorInfo::TensorInfo(std::string data_type, const Shape& shape) {
  for (const auto& r : kTypes) {
    if (data_type == r.name) set(r.type, shape);
  }
  if (!is_set) throw error("Unknown data type {}", data_type);
}

void TensorInfo::set(DataType new_type) { type = new_type; }

void TensorInfo::set(DataType new_type, const Shape& shape) {
  type = new_type;
  shape_v = shape;
  is_set = true;
}

int64_t TensorInfo::nelms() const {
  return std::accumulate(shape_v.begin(), shape_v.end(), int64_t(1), std::multiplies<int64_t>());
}
int64_t TensorInfo::nbytes() const { return nelms() * row(dataType()).bytes; }
DataType TensorInfo::dataType() const {
  if (!is_set) throw error("TensorInfo::dataType: data type is not set");
  return type;
}
const std::string& TensorInfo::data_type() const {
  static std::map<DataType, std::string> names;
  auto& name = names[dataType()];
  if (name.empty()) name = row(type).name;
  return name;
}

std::ostream& operator<<(std::ostream& stream, const TensorInfo& info) {
  if (!info.isSet()) return stream << "unset";
  return stream << info.data_type() << " " << logging::text(info.shape());
}

std::ostream& operator<<(std::ostream& os, const OperatorIdentifier& opid) {
  return os << opid.domain << "." << opid.type << ":" << opid.version;
}

namespace view {
int64_t Region::nelms() const {
  int64_t n = 1;
  for (std::size_t i = 0; i < lower.size(); ++i) n *= std::max<int64_t>(0, upper[i] - lower[i]);
  return n;
}
Region Region::getEmpty(int64_t r) {
  const std::vector<int64_t> zeros(static_cast<std::size_t>(std::max<int64_t>(1, r)), 0);
  return Region(zeros, zeros);
}
Region Region::getFull(const Shape& s, AccessType) { return Region(Shape(s.size(), 0), s); }
}  // namespace view

const Attributes::Value& Attributes::require(const std::string& key) const {
  const auto found = att_map.find(key);
  if (found == att_map.end()) throw error("no attribute key {}", key);
  return found->second;
}

std::string Attributes::hostDescription() const {
  std::string out;
  for (const auto& entry : att_map) out += entry.first + "=" + entry.second.described + ";";
  return out;
}

template <>
void Attributes::setIfPresent(std::vector<int64_t>& v, const std::string& key) const {
  if (hasAttribute(key)) v = require(key).ints;
}
template <>
void Attributes::setIfPresent(int64_t& v, const std::string& key) const {
  if (hasAttribute(key)) v = require(key).i;
}
template <>
void Attributes::setIfPresent(bool& v, const std::string& key) const {
  if (hasAttribute(key)) v = require(key).i != 0;
}
template <>
void Attributes::setIfPresent(std::string& v, const std::string& key) const {
  if (hasAttribute(key) && !require(key).s.empty()) v = require(key).s;
}
template <>
void Attributes::setIfPresent(float& v, const std::string& key) const {
  if (hasAttribute(key)) v = require(key).f;
}
template <>
void Attributes::set(std::vector<int64_t>& v, const std::string& key) const {
  v = require(key).ints;
}
template <>
void Attributes::set(std::vector<float>& v, const std::string& key) const {
  v = require(key).floats;
}
template <>
void Attributes::set(std::vector<std::string>& v, const std::string& key) const {
  v = require(key).strings;
}
template <>
void Attributes::set(float& v, const std::string& key) const {
  v = require(key).f;
}
template <>
void Attributes::set(int64_t& v, const std::string& key) const {
  v = require(key).i;
}
template <>
Attributes::Ints Attributes::getAttribute(const std::string& key, const Attributes::Ints& otherwise) const {
  return hasAttribute(key) ? require(key).ints : otherwise;
}
template <>
Attributes::Int Attributes::getAttribute(const std::string& key, const Attributes::Int& otherwise) const {
  return hasAttribute(key) ? require(key).i : otherwise;
}
template <>
Attributes::String Attributes::getAttribute(const std::string& key, const Attributes::String& otherwise) const {
  return hasAttribute(key) && !require(key).s.empty() ? require(key).s : otherwise;
}
template <>
Attributes::Float Attributes::getAttribute(const std::string& key, const Attributes::Float& otherwise) const {
  return hasAttribute(key) ? require(key).f : otherwise;
}
template <>
Attributes::Ints Attributes::getAttribute(const std::string& key) const {
  return require(key).ints;
}
template <>
Attributes::Int Attributes::getAttribute(const std::string& key) const {
  return require(key).i;
}
template <>
Attributes::String Attributes::getAttribute(const std::string& key) const {
  // PopART treats an empty string as not present.
  if (require(key).s.empty()) throw error("no attribute key {}", key);
  return require(key).s;
}
template <>
Attributes::Strings Attributes::getAttribute(const std::string& key) const {
  return require(key).strings;
}
template <>
Attributes::Float Attributes::getAttribute(const std::string& key) const {
  return require(key).f;
}
template <>
Attributes::Floats Attributes::getAttribute(const std::string& key) const {
  return require(key).floats;
}

Tensor* TensorIndexMap::tensor(int index) {
  const auto found = tensor_map.find(index);
  if (found == tensor_map.end()) throw error("No tensor at index {}", index);
  return found->second;
}
const Tensor* TensorIndexMap::tensor(int index) const { return const_cast<TensorIndexMap*>(this)->tensor(index); }
TensorId TensorIndexMap::id(int index) const { return tensor(index)->id; }

Tensor& Graph::addTensor(const TensorId& id) {
  auto& slot = tensors[id];
  if (slot) throw error("tensor {} is already in the graph", id);
  slot = std::make_unique<Tensor>(id, *this);
  return *slot;
}

Op& Graph::moveIntoGraph(std::unique_ptr<Op> op) {
  op->id = static_cast<OpId>(ops.size());
  ops.push_back(std::move(op));
  return *ops.back();
}

void Graph::connectInputs(Op& op, const std::map<InIndex, TensorId>& inputs) {
  const auto optional = op.optionalInputs();
  for (const auto& entry : inputs) {
    if (!entry.second.empty()) {
      op.connectInTensor(entry.first, entry.second);
    } else if (!optional.count(entry.first)) {
      throw error("No input found for input {} of {}, but input is not optional", entry.first, op.debugName());
    }
  }
}

Ir& Op::Settings::getIr() const { return graph.get().getIr(); }
Ir& Op::getIr() { return getGraph().getIr(); }
const Ir& Op::getIr() const { return getGraph().getIr(); }

Op::Op(const OperatorIdentifier& _opid, const Op::Settings& settings_)
    : input(std::make_unique<TensorIndexMap>()),
      output(std::make_unique<TensorIndexMap>()),
      opid(_opid),
      settings(settings_) {}
// As in PopART: a copy is connected to nothing.
Op::Op(const Op& other)
    : Vertex(other),
      input(std::make_unique<TensorIndexMap>()),
      output(std::make_unique<TensorIndexMap>()),
      opid(other.opid),
      settings(other.settings) {}
Op::~Op() = default;

std::string Op::str() const { return logging::format("{} ({})", id, opid); }
std::string Op::debugName() const { return logging::format("Op({}, {})", settings.name, opid); }

void Op::connectInTensor(InIndex index, TensorId tensorId) { input->insert(index, &getGraph().getTensor(tensorId)); }
void Op::createAndConnectOutTensor(OutIndex index, TensorId tensorId) {
  output->insert(index, &getGraph().addTensor(tensorId));
}
void Op::disconnectInTensor(InIndex index) { input->erase(index); }

void Op::setup() { throw error("No setup() for {}", opid); }
std::vector<std::unique_ptr<Op>> Op::getGradOps() { return {}; }
std::vector<std::tuple<OperatorIdentifier, float>> Op::inplacePriorityDefault() const { return {}; }
std::unique_ptr<Op> Op::getInplaceVariant(const OperatorIdentifier& operator_id) const {
  throw error("Op {} cannot return inplace variant {} ", opid, operator_id);
}
void Op::growAliasModel(AliasModel&) const {}
view::Regions Op::modifies(InIndex) const { return {}; }
view::Regions Op::uses(InIndex) const { return {}; }
view::Regions Op::aliases(InIndex, OutIndex) const { return {}; }
view::RegMap Op::fwdRegMap(InIndex, OutIndex) const {
  return [](const view::Region& region) { return view::Regions{region}; };
}
view::RegMap Op::bwdRegMap(InIndex in, OutIndex out) const { return fwdRegMap(in, out); }
bool Op::modifiesIndex(InIndex in) const {
  const auto regions = modifies(in);
  return std::any_of(regions.begin(), regions.end(), [](const view::Region& r) { return !r.isEmpty(); });
}
bool Op::doesAlias(InIndex in, OutIndex out) const {
  const auto regions = aliases(in, out);
  return std::any_of(regions.begin(), regions.end(), [](const view::Region& r) { return !r.isEmpty(); });
}
int Op::getNonGradInIndex(int gradOpOutIndex) const { return gradOutToNonGradIn().at(gradOpOutIndex); }
const std::vector<GradInOutMapper>& Op::gradInputInfo() const {
  throw error("Op {} cannot get `grad input info'", opid);
}
const std::map<int, int>& Op::gradOutToNonGradIn() const {
  throw error("Op {} cannot get `grad out to non grad in'", opid);
}
bool Op::hasInput(InIndex index) const { return input->hasIndex(index); }
bool Op::hasOutput(OutIndex index) const { return output->hasIndex(index); }
Tensor* Op::inTensor(InIndex index) { return input->tensor(index); }
const Tensor* Op::inTensor(InIndex index) const { return input->tensor(index); }
Tensor* Op::outTensor(OutIndex index) { return output->tensor(index); }
const Tensor* Op::outTensor(OutIndex index) const { return output->tensor(index); }
TensorId Op::inId(InIndex index) { return input->id(index); }
const TensorId Op::inId(InIndex index) const { return input->id(index); }
TensorId Op::outId(OutIndex index) { return output->id(index); }
const TensorId Op::outId(OutIndex index) const { return output->id(index); }
TensorInfo& Op::inInfo(InIndex index) { return input->tensor(index)->info; }
const TensorInfo& Op::inInfo(InIndex index) const { return input->tensor(index)->info; }
TensorInfo& Op::outInfo(OutIndex index) { return output->tensor(index)->info; }
const TensorInfo& Op::outInfo(OutIndex index) const { return output->tensor(index)->info; }
const Shape& Op::inShape(InIndex index) const { return inInfo(index).shape(); }
const Shape& Op::outShape(OutIndex index) const { return outInfo(index).shape(); }
size_t Op::inTensorCount() const { return static_cast<size_t>(input->n()); }
size_t Op::outTensorCount() const { return static_cast<size_t>(output->n()); }
Rank Op::inRank(InIndex index) const { return inInfo(index).rank(); }
Rank Op::outRank(OutIndex index) const { return outInfo(index).rank(); }

void Op::appendAttributes(OpSerialiserBase& os) const { appendOutlineAttributes(os); }
void Op::appendOutlineAttributes(OpSerialiserBase& os) const {
  os.appendAttribute("recompute", std::string("NO"));
  os.appendAttribute("__ipu_number", settings.vgraphId);
  for (const auto& attribute : settings.extraOutlineAttributes) {
    os.appendAttribute(attribute.first, attribute.first + ":" + attribute.second);
  }
}
std::string Op::getSubgraphEquivId() const {
  OpEquivIdCreator creator(this);
  appendOutlineAttributes(creator);
  return creator.str();
}

// Numbers go through a stream with six digits, so that 1.0f and 1.0000001f look the same, as in PopART.
#define HOST_SDK_APPEND(Type)                                                  \
  void OpSerialiserBase::appendAttribute(const std::string& key, Type value) { \
    appendStrAttr(key, logging::text(value));                                  \
  }
HOST_SDK_APPEND(float)
HOST_SDK_APPEND(double)
HOST_SDK_APPEND(int)
HOST_SDK_APPEND(int64_t)
HOST_SDK_APPEND(uint32_t)
HOST_SDK_APPEND(uint64_t)
HOST_SDK_APPEND(bool)
HOST_SDK_APPEND(const std::string&)
HOST_SDK_APPEND(const std::vector<float>&)
HOST_SDK_APPEND(const std::vector<double>&)
HOST_SDK_APPEND(const std::vector<int64_t>&)
HOST_SDK_APPEND(const Scope&)
#undef HOST_SDK_APPEND

OpEquivIdCreator::OpEquivIdCreator(const Op* op) {
  ss << op->opid.domain << "::" << op->opid.type << "::" << op->opid.version << '_';
  for (const auto* map : {op->input.get(), op->output.get()}) {
    for (const auto& entry : map->tensorMap()) ss << entry.first << entry.second->info << ',';
    ss << '_';
  }
}
void OpEquivIdCreator::appendStrAttr(const std::string&, const std::string& value) { ss << value << '_'; }

OpManager& OpManager::getInstance() {
  static OpManager instance;
  return instance;
}
void OpManager::registerOp(const OpInfo& opInfo) {
  getInstance().opMap[{opInfo.id.domain, opInfo.id.type}].insert({static_cast<int>(opInfo.id.version), opInfo});
}
std::unique_ptr<Op> OpManager::createOp(const OpDomain& domain, const OpType& type, int opsetVersion, Graph& graph,
                                        const std::string& name, const Attributes& attributes,
                                        const std::vector<TensorId>& inputIds, const std::vector<TensorId>& outputIds) {
  const auto found = getInstance().opMap.find({domain, type});
  if (found == getInstance().opMap.end()) return nullptr;
  const OpInfo* info = nullptr;
  for (const auto& version : found->second) {
    if (version.first <= opsetVersion) info = &version.second;
  }
  if (!info) return nullptr;
  const Op::Settings settings(graph, name);
  return info->factory(OpCreatorInfo(info->id, settings, attributes, inputIds, outputIds));
}

namespace {
std::map<OperatorIdentifier, ShapeInferenceFunction, OperatorIdentifierLess>& shapeFunctions() {
  static std::map<OperatorIdentifier, ShapeInferenceFunction, OperatorIdentifierLess> functions;
  return functions;
}
}  // namespace

void ShapeInferenceFunctions::registerFunction(const OperatorIdentifier& opid, ShapeInferenceFunction function) {
  shapeFunctions()[opid] = std::move(function);
}
bool ShapeInferenceFunctions::hasFunction(const OperatorIdentifier& opid) { return shapeFunctions().count(opid) > 0; }
ShapeInferenceFunction ShapeInferenceFunctions::getFunction(const OperatorIdentifier& opid) {
  return shapeFunctions().at(opid);
}
RegisterShapeInferenceFunction::RegisterShapeInferenceFunction(const OperatorIdentifier& opid,
                                                               ShapeInferenceFunction function) {
  ShapeInferenceFunctions::registerFunction(opid, std::move(function));
}

namespace popx {

poplar::Type popType(DataType type) {
  switch (type) {
    case DataType::FLOAT:
      return poplar::FLOAT;
    case DataType::FLOAT16:
      return poplar::HALF;
    case DataType::INT32:
      return poplar::INT;
    case DataType::UINT32:
      return poplar::UNSIGNED_INT;
    case DataType::INT16:
      return poplar::SHORT;
    case DataType::UINT16:
      return poplar::UNSIGNED_SHORT;
    case DataType::INT8:
      return poplar::SIGNED_CHAR;
    case DataType::UINT8:
      return poplar::UNSIGNED_CHAR;
    case DataType::BOOL:
      return poplar::BOOL;
    default:
      throw error("Poplar has no type for {}", type);
  }
}
poplar::Type popType(const TensorInfo& info) { return popType(info.dataType()); }

const poplar::Tensor& Devicex::get(const TensorId& id) const {
  const auto found = tensors_.find(id);
  if (found == tensors_.end()) throw error("no poplar::Tensor {}", id);
  return found->second;
}

void Devicex::insert(const TensorId& id, const poplar::Tensor& tensor) {
  if (has(id)) throw internal_error("poplar::Tensor {} already in map", id);
  Graph& graph = ir_.getMainGraph();
  if (!graph.hasTensor(id)) throw internal_error("no tensor named {} in ir, is this a valid poplar::Tensor?", id);
  const TensorInfo& info = graph.getTensor(id).info;
  const auto squeezed = [](std::vector<std::size_t> shape) {
    while (!shape.empty() && shape.front() == 1) shape.erase(shape.begin());
    return shape;
  };
  if (!tensor.valid()) throw error("poplar::Tensor {} is not a tensor of the graph", id);
  if (squeezed(tensor.shape()) != squeezed(info.shape_szt())) {
    throw error("poplar::Tensor {} of unexpected shape. Poplar tensor shape: {}. Expected (Ir) tensor shape: {}.", id,
                tensor.shape(), info.shape());
  }
  if (tensor.elementType() != popType(info)) {
    throw error("poplar::Tensor {} of unexpected Type. Poplar tensor type : {}. Expected (Ir) tensor type : {}.", id,
                tensor.elementType(), popType(info));
  }
  tensors_.emplace(id, tensor);
}

Opx::Opx(Op* op, Devicex* devicex) : op_p(op), dv_p(devicex) {}
Opx::~Opx() = default;

poplar::Tensor Opx::createInput(InIndex index, const poplar::DebugNameAndId&) const {
  throw error("Opx for {} cannot create Input index: {}", op_p->opid, index);
}
InputCreatorType Opx::getInputCreatorType(InIndex) const { return InputCreatorType::Deadend; }
bool Opx::canUnwind(InIndex in, OutIndex) const { return getInputCreatorType(in) == InputCreatorType::CanUnwind; }
view::RegMap Opx::unwindRegion(InIndex, OutIndex) const {
  throw error("Opx cannot unwind the region between input and output for {}", op_p->opid);
}
poplar::Tensor Opx::unwindTensorLayout(poplar::Tensor, InIndex, OutIndex) const {
  throw error("Opx for {} cannot unwind the tensor layout change between input and output", op_p->opid);
}
bool Opx::createsEquiv(int, const Opx*, int) const {
  throw error("No check for equivalent tensor create for {}", op_p->opid);
}
bool Opx::outputCreatedExternally(OutIndex) const { return false; }
std::set<TensorId> Opx::mustExistBeforeCreate(int) const { return {}; }

poplar::Tensor Opx::cloneNcopy(poplar::program::Sequence& prog, TensorId id) const { return cloneNcopy(prog, get(id)); }
poplar::Tensor Opx::cloneNcopy(poplar::program::Sequence& prog, const poplar::Tensor& tensor,
                               const std::string name) const {
  poplar::Tensor copy = graph().clone(tensor, debugContext(name));
  prog.add(poplar::program::Copy(tensor, copy, false, debugContext(name)));
  return copy;
}
poplar::Graph& Opx::graph() const { return dv_p->graph(); }
poplar::Graph& Opx::topLevelGraph() const { return dv_p->graph(); }
poplar::Graph& Opx::srcGraph(InIndex) const { return graph(); }
poplar::Graph& Opx::dstGraph(OutIndex) const { return graph(); }
poplar::Graph& Opx::inGraph(InIndex) const { return graph(); }
poplar::Graph& Opx::outGraph(OutIndex) const { return graph(); }
const poplar::Tensor& Opx::get(TensorId id) const { return dv_p->get(id); }
void Opx::insert(TensorId id, const poplar::Tensor& tensor) const { dv_p->insert(id, tensor); }
Tensor* Opx::inTensor(InIndex index) const { return op_p->inTensor(index); }
Tensor* Opx::outTensor(OutIndex index) const { return op_p->outTensor(index); }
const poplar::Tensor& Opx::getInTensor(InIndex index) const { return get(op_p->inId(index)); }
const poplar::Tensor& Opx::getOutTensor(OutIndex index) const { return get(op_p->outId(index)); }
const TensorInfo& Opx::inInfo(InIndex index) const { return inTensor(index)->info; }
const Shape& Opx::inShape(InIndex index) const { return inInfo(index).shape(); }
const TensorInfo& Opx::outInfo(OutIndex index) const { return outTensor(index)->info; }
const Shape& Opx::outShape(OutIndex index) const { return outInfo(index).shape(); }
const std::vector<size_t> Opx::inShapeSzt(InIndex index) const { return inInfo(index).shape_szt(); }
bool Opx::hasInput(InIndex index) const { return op_p->hasInput(index); }
bool Opx::hasOutput(OutIndex index) const { return op_p->hasOutput(index); }
TensorId Opx::inId(InIndex index) const { return op_p->inId(index); }
TensorId Opx::outId(OutIndex index) const { return op_p->outId(index); }

void Opx::setOutTensor(OutIndex index, const poplar::Tensor& tensor) const { insert(outId(index), tensor); }

poplar::Tensor Opx::getConst(const poplar::Type& type, const std::vector<size_t>& shape, double val,
                             const std::string& name) const {
  poplar::Tensor t = graph().addConstant(type, shape, val, debugContext(name));
  graph().setTileMapping(t, 0);
  return t;
}
poplar::Tensor Opx::getScalarVariable(const poplar::Type& type, const std::string& name) const {
  poplar::Tensor t = graph().addVariable(type, {}, debugContext(name));
  graph().setTileMapping(t, 0);
  return t;
}
poplar::Tensor Opx::getZerosTensor(std::vector<std::size_t> shape, poplar::Type elem_type, std::string name) const {
  poplar::Tensor zero = getScalarVariable(elem_type, name);
  graph().setInitialValue(zero, 0);
  for (std::size_t i = shape.size(); i-- > 0;) {
    zero = zero.expand({0}).broadcast(static_cast<unsigned>(shape[i]), 0);
  }
  return zero;
}
void Opx::grow(poplar::program::Sequence&) const {
  throw error("adding poplar::Tensors not implemented for {}", op_p->opid);
}
const poplar::DebugNameAndId Opx::getDebugNameAndId(const std::string name, poplar::SourceLocation) const {
  return poplar::DebugNameAndId(name, 0, op_p->opid.type);
}
poplar::DebugContext Opx::debugContext(const std::string name, poplar::SourceLocation loc) const {
  return poplar::DebugContext(getDebugNameAndId(""), name, loc);
}

OpxManager& OpxManager::getInstance() {
  static OpxManager instance;
  return instance;
}
void OpxManager::registerOpx(const OperatorIdentifier& opid, OpxFactoryFunc func) {
  getInstance().factory[opid] = std::move(func);
}
std::unique_ptr<Opx> OpxManager::createOpx(Op* op, Devicex* devicex) {
  const auto found = getInstance().factory.find(op->opid);
  if (found != getInstance().factory.end()) return found->second(op, devicex);
  throw error(
      "Could not create opx for '{}' and there were no patterns intended to remove it. Please check it is defined and "
      "registered correctly",
      op->opid);
}

}  // namespace popx
}  // namespace popart
