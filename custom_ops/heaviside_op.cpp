// snn.ipu.Heaviside: spk = x > threshold, differentiated with a surrogate. PopART's view of spike_program.
#include "popart_headers.hpp"
#include "spike_program.hpp"

namespace {

using snn_ipu::SpikeSpec;

const popart::OperatorIdentifier kHeaviside = {"snn.ipu", "Heaviside", 1, {1, 1}, 1};
const popart::OperatorIdentifier kHeavisideGrad = {"snn.ipu", "HeavisideGrad", 1, {2, 2}, 1};

void appendSpec(popart::OpSerialiserBase& os, const SpikeSpec& spec) {
  os.appendAttribute("codelet", spec.codelet);
  os.appendAttribute("threshold", spec.threshold);
  os.appendAttribute("spike_params", spec.spikeParams);
}

class HeavisideGradOp : public popart::Op {
 public:
  HeavisideGradOp(const popart::Op& forward, SpikeSpec spec)
      : popart::Op(kHeavisideGrad, forward.getSettings()), spec(std::move(spec)) {}

  std::unique_ptr<popart::Op> clone() const final { return std::make_unique<HeavisideGradOp>(*this); }
  void setup() final { outInfo(0) = inInfo(1); }
  const std::vector<popart::GradInOutMapper>& gradInputInfo() const final {
    static const std::vector<popart::GradInOutMapper> inputs = {{0, 0, popart::GradOpInType::GradOut},
                                                                {1, 0, popart::GradOpInType::In}};
    return inputs;
  }
  const std::map<int, int>& gradOutToNonGradIn() const final {
    static const std::map<int, int> outputs = {{0, 0}};
    return outputs;
  }
  float getSubgraphValue() const final { return getLowSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const final {
    popart::Op::appendOutlineAttributes(os);
    appendSpec(os, spec);
  }

  SpikeSpec spec;
};

class HeavisideOp : public popart::Op {
 public:
  HeavisideOp(const popart::OperatorIdentifier& opid, const popart::Op::Settings& settings, SpikeSpec spec)
      : popart::Op(opid, settings), spec(std::move(spec)) {}

  std::unique_ptr<popart::Op> clone() const final { return std::make_unique<HeavisideOp>(*this); }
  void setup() final {
    const auto type = inInfo(0).dataType();
    if (type != popart::DataType::FLOAT && type != popart::DataType::FLOAT16) {
      throw popart::error("snn.ipu.Heaviside of {}: expected float32 or float16. Cast the input.",
                          inInfo(0).data_type());
    }
    outInfo(0) = inInfo(0);
  }
  std::vector<std::unique_ptr<popart::Op>> getGradOps() final {
    std::vector<std::unique_ptr<popart::Op>> ops;
    ops.emplace_back(std::make_unique<HeavisideGradOp>(*this, spec));
    return ops;
  }
  float getSubgraphValue() const final { return getLowSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const final {
    popart::Op::appendOutlineAttributes(os);
    appendSpec(os, spec);
  }

  SpikeSpec spec;
};

class HeavisideOpx : public popart::popx::Opx {
 public:
  HeavisideOpx(popart::Op* op, popart::popx::Devicex* device) : Opx(op, device) {
    verifyOp<HeavisideOp>(op, kHeaviside);
  }
  void grow(poplar::program::Sequence& prog) const final {
    const SpikeSpec& spec = getOp<HeavisideOp>().spec;
    try {
      setOutTensor(0, snn_ipu::buildSpike(graph(), spec, getInTensor(0), prog, debugContext("spike")));
    } catch (const std::runtime_error& e) {
      throw popart::error("{}", e.what());
    }
  }
};

class HeavisideGradOpx : public popart::popx::Opx {
 public:
  HeavisideGradOpx(popart::Op* op, popart::popx::Devicex* device) : Opx(op, device) {
    verifyOp<HeavisideGradOp>(op, kHeavisideGrad);
  }
  void grow(poplar::program::Sequence& prog) const final {
    const SpikeSpec& spec = getOp<HeavisideGradOp>().spec;
    try {
      setOutTensor(
          0, snn_ipu::buildSpikeGrad(graph(), spec, getInTensor(0), getInTensor(1), prog, debugContext("spikeGrad")));
    } catch (const std::runtime_error& e) {
      throw popart::error("{}", e.what());
    }
  }
};

const popart::OpDefinition::DataTypes kTypes = {popart::DataType::FLOAT, popart::DataType::FLOAT16};
const popart::OpDefinition kDefinition(
    popart::OpDefinition::Inputs({{"x", kTypes}}), popart::OpDefinition::Outputs({{"spk", kTypes}}),
    popart::OpDefinition::Attributes({{"codelet", {"*"}}, {"threshold", {"*"}}, {"spike_params", {"*"}}}));

std::unique_ptr<popart::Op> makeHeaviside(const popart::OpCreatorInfo& info) {
  SpikeSpec spec;
  spec.codelet = info.attributes.getAttribute<popart::Attributes::String>("codelet");
  spec.threshold = info.attributes.getAttribute<popart::Attributes::Float>("threshold");
  // Lists cannot be empty on their way here, so the first number is how many follow.
  const auto params = info.attributes.getAttribute<popart::Attributes::Floats>("spike_params");
  spec.spikeParams.assign(params.begin() + 1, params.end());
  return std::make_unique<HeavisideOp>(info.opid, info.settings, std::move(spec));
}

const popart::OpCreator<HeavisideOp> kCreator(popart::OpDefinitions({{kHeaviside, kDefinition}}), makeHeaviside, true);
const popart::popx::OpxCreator<HeavisideOpx> kOpxCreator(kHeaviside);
const popart::popx::OpxCreator<HeavisideGradOpx> kGradOpxCreator(kHeavisideGrad);
const popart::RegisterShapeInferenceFunction kShapes(kHeaviside, [](popart::ShapeInferenceContext& context) {
  context.outInfo(0) = context.inInfo(0);
});

}  // namespace
