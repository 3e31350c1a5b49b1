// snn.ipu.Scan: all T steps of a layer of neurons. PopART's view of scan_program.
//
// Inputs: x, the initial states that are given, the parameters.
// Outputs: spikes, final states, traces, and values kept for the backward pass, which no user sees.
#include "popart_headers.hpp"
#include "scan_program.hpp"

namespace {

using popart::GradOpInType;
using snn_ipu::bit;
using snn_ipu::kScanAttributes;
using snn_ipu::ScanSpec;

const popart::OperatorIdentifier kScan = {"snn.ipu", "Scan", 1};
const popart::OperatorIdentifier kScanGrad = {"snn.ipu", "ScanGrad", 1};

void appendSpec(popart::OpSerialiserBase& os, const ScanSpec& spec) {
  os.appendAttribute("codelet", spec.codelet);
  os.appendAttribute("spike_params", spec.spikeParams);
  for (const auto& attribute : kScanAttributes) os.appendAttribute(attribute.name, spec.*attribute.field);
}

/// Where things are among the inputs and outputs of the forward op.
struct Ports {
  explicit Ports(const ScanSpec& spec) {
    int next = 1;
    for (int64_t i = 0; i < spec.states; ++i) initial.push_back(bit(spec.givenStates, i) ? next++ : -1);
    for (int64_t i = 0; i < spec.params; ++i) params.push_back(next++);
    next = 1;
    for (int64_t i = 0; i < spec.states; ++i) finals.push_back(next++);
    for (int64_t i = 0; i < spec.traces; ++i) traces.push_back(next++);
    for (int64_t i = 0; i < spec.saves; ++i) saves.push_back(next++);
  }
  std::vector<int> initial;  // -1 where not given
  std::vector<int> params;
  std::vector<int> finals;
  std::vector<int> traces;
  std::vector<int> saves;
};

class ScanGradOp : public popart::Op {
 public:
  ScanGradOp(const popart::Op& forward, const ScanSpec& spec)
      : popart::Op(kScanGrad, forward.getSettings()), spec(spec), x(forward.inInfo(0)) {
    const Ports ports(spec);
    const auto add = [this](int port, GradOpInType type) {
      inputs_.emplace_back(static_cast<int>(inputs_.size()), port, type);
      return static_cast<int>(inputs_.size()) - 1;
    };
    // Outputs that do not reach the loss have no gradient.
    gradSpk = add(0, GradOpInType::GradOut);
    for (int port : ports.finals) gradFinals.push_back(add(port, GradOpInType::GradOut));
    for (int port : ports.traces) gradTraces.push_back(add(port, GradOpInType::GradOut));
    for (std::size_t i = 0; i < inputs_.size(); ++i) optional_.insert(static_cast<int>(i));

    if (spec.needsX) xPort = add(0, GradOpInType::In);
    for (int64_t i = 0; i < spec.states; ++i) {
      const int port = ports.initial[static_cast<std::size_t>(i)];
      initial.push_back(port >= 0 && bit(spec.needsStates, i) ? add(port, GradOpInType::In) : -1);
    }
    for (int port : ports.params) params.push_back(add(port, GradOpInType::In));
    for (int64_t i = 0; i < spec.traces; ++i) {
      const int port = ports.traces[static_cast<std::size_t>(i)];
      traces.push_back(bit(spec.keptTraces, i) ? add(port, GradOpInType::Out) : -1);
    }
    for (int port : ports.saves) saves.push_back(add(port, GradOpInType::Out));

    addOutput(0, x);
    for (int port : ports.initial) {
      if (port >= 0) addOutput(port, forward.inInfo(port));
    }
    for (int64_t i = 0; i < spec.params; ++i) {
      const int port = ports.params[static_cast<std::size_t>(i)];
      if (bit(spec.learned, i)) addOutput(port, forward.inInfo(port));
    }
  }

  std::unique_ptr<popart::Op> clone() const final { return std::make_unique<ScanGradOp>(*this); }
  void setup() final {
    for (std::size_t i = 0; i < outputInfos_.size(); ++i) outInfo(static_cast<int>(i)) = outputInfos_[i];
  }
  const std::vector<popart::GradInOutMapper>& gradInputInfo() const final { return inputs_; }
  const std::map<int, int>& gradOutToNonGradIn() const final { return outputs_; }
  std::set<popart::InIndex> optionalInputs() const final { return optional_; }
  float getSubgraphValue() const final { return getHighSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const final {
    popart::Op::appendOutlineAttributes(os);
    appendSpec(os, spec);
  }

  ScanSpec spec;
  popart::TensorInfo x;
  int gradSpk = 0;
  int xPort = -1;
  std::vector<int> gradFinals, gradTraces, initial, params, traces, saves;

 private:
  void addOutput(int port, const popart::TensorInfo& info) {
    outputs_[static_cast<int>(outputInfos_.size())] = port;
    outputInfos_.push_back(info);
  }

  std::vector<popart::GradInOutMapper> inputs_;
  std::map<int, int> outputs_;
  std::set<popart::InIndex> optional_;
  std::vector<popart::TensorInfo> outputInfos_;
};

class ScanOp : public popart::Op {
 public:
  ScanOp(const popart::OperatorIdentifier& opid, const popart::Op::Settings& settings, ScanSpec spec)
      : popart::Op(opid, settings), spec(std::move(spec)) {}

  std::unique_ptr<popart::Op> clone() const final { return std::make_unique<ScanOp>(*this); }

  void setup() final {
    const popart::TensorInfo& x = inInfo(0);
    const popart::Shape& shape = x.shape();
    const std::size_t rank = spec.isStatic ? 2 : 3;
    if (x.dataType() != popart::DataType::FLOAT && x.dataType() != popart::DataType::FLOAT16) {
      throw popart::error("{} of {}: expected float32 or float16. Cast the input.", spec.layer, x.data_type());
    }
    if (shape.size() != rank || spec.steps < 1 || (!spec.isStatic && shape[0] != spec.steps)) {
      throw popart::error("{}: x of rank {} with {} steps; expected [T, B, N], or [B, N] where static", spec.layer,
                          shape.size(), spec.steps);
    }
    const popart::Shape frame(shape.end() - 2, shape.end());
    const auto rows = [&frame](int64_t count) { return popart::Shape{count, frame[0], frame[1]}; };
    const Ports ports(spec);
    for (int port : ports.initial) {
      if (port >= 0) require(port, frame, "an initial state");
    }
    for (std::size_t i = 0; i < ports.params.size(); ++i) {
      const auto count = bit(spec.perFeature, static_cast<int64_t>(i)) ? frame[1] : 1;
      if (inInfo(ports.params[i]).nelms() != count) {
        throw popart::error("{}: parameter {} has {} elements, expected {}", spec.layer, i,
                            inInfo(ports.params[i]).nelms(), count);
      }
      require(ports.params[i], inInfo(ports.params[i]).shape(), "a parameter");
    }
    const int64_t saved = snn_ipu::savedRows(snn_ipu::sizesOf(spec, frame[0], frame[1], 4));
    outInfo(0).set(x.dataType(), rows(spec.steps));
    for (int port : ports.finals) outInfo(port).set(popart::DataType::FLOAT, frame);
    for (int port : ports.traces) outInfo(port).set(popart::DataType::FLOAT, rows(spec.steps));
    for (int port : ports.saves) outInfo(port).set(spec.narrow ? x.dataType() : popart::DataType::FLOAT, rows(saved));
  }

  std::vector<std::unique_ptr<popart::Op>> getGradOps() final {
    if (!spec.training) throw popart::error("{} was traced for inference and has no gradient", spec.layer);
    std::vector<std::unique_ptr<popart::Op>> ops;
    ops.emplace_back(std::make_unique<ScanGradOp>(*this, spec));
    return ops;
  }
  float getSubgraphValue() const final { return getHighSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const final {
    popart::Op::appendOutlineAttributes(os);
    appendSpec(os, spec);
  }

  ScanSpec spec;

 private:
  void require(int port, const popart::Shape& shape, const char* what) {
    if (inInfo(port).shape() != shape || inInfo(port).dataType() != popart::DataType::FLOAT) {
      throw popart::error("{}: input {}, {}, does not fit x; expected float32 in its frame's shape", spec.layer, port,
                          what);
    }
  }
};

class ScanOpx : public popart::popx::Opx {
 public:
  ScanOpx(popart::Op* op, popart::popx::Devicex* device) : Opx(op, device) { verifyOp<ScanOp>(op, kScan); }

  void grow(poplar::program::Sequence& prog) const final {
    const ScanSpec& spec = getOp<ScanOp>().spec;
    const Ports ports(spec);
    snn_ipu::ScanInputs in;
    in.x = getInTensor(0);
    for (int port : ports.initial) in.initial.push_back(given(port));
    for (int port : ports.params) in.params.push_back(getInTensor(port));
    try {
      const snn_ipu::ScanOutputs out = snn_ipu::buildScan(graph(), spec, in, prog, debugContext("scan"));
      setOutTensor(0, out.spk);
      set(ports.finals, out.finals);
      set(ports.traces, out.traces);
      set(ports.saves, out.saves);
    } catch (const std::runtime_error& e) {
      throw popart::error("{}", e.what());
    }
  }

 private:
  snn_ipu::MaybeTensor given(int port) const {
    return port >= 0 ? snn_ipu::MaybeTensor(getInTensor(port)) : std::nullopt;
  }
  void set(const std::vector<int>& ports, const std::vector<poplar::Tensor>& tensors) const {
    for (std::size_t i = 0; i < ports.size(); ++i) setOutTensor(ports[i], tensors[i]);
  }
};

class ScanGradOpx : public popart::popx::Opx {
 public:
  ScanGradOpx(popart::Op* op, popart::popx::Devicex* device) : Opx(op, device) { verifyOp<ScanGradOp>(op, kScanGrad); }

  void grow(poplar::program::Sequence& prog) const final {
    const auto& op = getOp<ScanGradOp>();
    const ScanSpec& spec = op.spec;
    snn_ipu::ScanGradInputs in;
    in.gradSpk = given(op.gradSpk);
    in.gradFinals = givenOf(op.gradFinals);
    in.gradTraces = givenOf(op.gradTraces);
    in.x = given(op.xPort);
    in.initial = givenOf(op.initial);
    for (int port : op.params) in.params.push_back(getInTensor(port));
    in.traces = givenOf(op.traces);
    for (int port : op.saves) in.saves.push_back(getInTensor(port));
    const popart::Shape& shape = op.x.shape();
    in.type = op.x.dataType() == popart::DataType::FLOAT16 ? poplar::HALF : poplar::FLOAT;
    in.batch = shape[shape.size() - 2];
    in.features = shape[shape.size() - 1];
    try {
      const auto out = snn_ipu::buildScanGrad(graph(), spec, in, prog, debugContext("scanGrad"));
      int next = 0;
      setOutTensor(next++, out.gradX);
      for (int64_t i = 0; i < spec.states; ++i) {
        if (bit(spec.givenStates, i)) setOutTensor(next++, out.gradInitial[static_cast<std::size_t>(i)]);
      }
      for (const auto& gradient : out.gradParams) setOutTensor(next++, gradient);
    } catch (const std::runtime_error& e) {
      throw popart::error("{}", e.what());
    }
  }

 private:
  snn_ipu::MaybeTensor given(int port) const {
    return port >= 0 && hasInput(port) ? snn_ipu::MaybeTensor(getInTensor(port)) : std::nullopt;
  }
  std::vector<snn_ipu::MaybeTensor> givenOf(const std::vector<int>& ports) const {
    std::vector<snn_ipu::MaybeTensor> tensors;
    for (int port : ports) tensors.push_back(given(port));
    return tensors;
  }
};

const popart::OpDefinition::DataTypes kTypes = {popart::DataType::FLOAT, popart::DataType::FLOAT16};
const popart::OpDefinition kDefinition(popart::OpDefinition::Inputs({{"x", kTypes}}),
                                       popart::OpDefinition::Outputs({{"spk", kTypes}}),
                                       popart::OpDefinition::Attributes({{"codelet", {"*"}}, {"spike_params", {"*"}}}));

std::unique_ptr<popart::Op> makeScan(const popart::OpCreatorInfo& info) {
  ScanSpec spec;
  spec.codelet = info.attributes.getAttribute<popart::Attributes::String>("codelet");
  spec.layer = info.attributes.getAttribute<popart::Attributes::String>("layer");
  // Lists cannot be empty on their way here, so the first number is how many follow.
  const auto params = info.attributes.getAttribute<popart::Attributes::Floats>("spike_params");
  spec.spikeParams.assign(params.begin() + 1, params.end());
  for (const auto& attribute : kScanAttributes) {
    spec.*attribute.field = info.attributes.getAttribute<popart::Attributes::Int>(attribute.name);
  }
  return std::make_unique<ScanOp>(info.opid, info.settings, std::move(spec));
}

const popart::OpCreator<ScanOp> kCreator(popart::OpDefinitions({{kScan, kDefinition}}), makeScan, true);
const popart::popx::OpxCreator<ScanOpx> kOpxCreator(kScan);
const popart::popx::OpxCreator<ScanGradOpx> kGradOpxCreator(kScanGrad);

}  // namespace
