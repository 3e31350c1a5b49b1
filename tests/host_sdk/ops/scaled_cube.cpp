// The model's own example of a custom op: two outputs, a gradient, codelets, several tiles.
#include <memory>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <popops/ElementWiseUtil.hpp>
#include <poputil/TileMapping.hpp>
#include <poputil/VertexTemplates.hpp>
#include <string>
#include <vector>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <popart/op.hpp>
#include <popart/opmanager.hpp>
#include <popart/opserialiser.hpp>
#include <popart/popx/opx.hpp>
#include <popart/popx/opxmanager.hpp>
#include <popart/shapeinference.hpp>
#pragma GCC diagnostic pop

namespace {

const popart::OperatorIdentifier kCube{"host.example", "ScaledCube", 1, {1, 1}, 2};
const popart::OperatorIdentifier kCubeGrad{"host.example", "ScaledCubeGrad", 1, {1, 3}, 1};

class ScaledCubeGradOp;

class ScaledCubeOp : public popart::Op {
 public:
  ScaledCubeOp(const popart::OperatorIdentifier& opid, const popart::Op::Settings& settings, float scale,
               std::string codelets)
      : popart::Op(opid, settings), scale_(scale), codelets_(std::move(codelets)) {}

  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<ScaledCubeOp>(*this); }
  void setup() override {
    const auto type = inInfo(0).dataType();
    if (type != popart::DataType::FLOAT && type != popart::DataType::FLOAT16) {
      throw popart::error("ScaledCube takes float or half, got {}", type);
    }
    outInfo(0) = inInfo(0);
    outInfo(1) = inInfo(0);
  }
  std::vector<std::unique_ptr<popart::Op>> getGradOps() override;
  float getSubgraphValue() const override { return getLowSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const override {
    popart::Op::appendOutlineAttributes(os);
    os.appendAttribute("scale", scale_);
  }
  float scale() const { return scale_; }
  const std::string& codelets() const { return codelets_; }

 private:
  float scale_;
  std::string codelets_;
};

class ScaledCubeGradOp : public popart::Op {
 public:
  explicit ScaledCubeGradOp(const ScaledCubeOp& op)
      : popart::Op(kCubeGrad, op.getSettings()), scale_(op.scale()), codelets_(op.codelets()) {}

  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<ScaledCubeGradOp>(*this); }
  void setup() override { outInfo(0) = inInfo(0); }
  const std::vector<popart::GradInOutMapper>& gradInputInfo() const override {
    static const std::vector<popart::GradInOutMapper> info = {
        {0, 0, popart::GradOpInType::In}, {1, 0, popart::GradOpInType::GradOut}, {2, 1, popart::GradOpInType::GradOut}};
    return info;
  }
  const std::map<int, int>& gradOutToNonGradIn() const override {
    static const std::map<int, int> info = {{0, 0}};
    return info;
  }
  std::set<popart::InIndex> optionalInputs() const override { return {1, 2}; }
  float getSubgraphValue() const override { return getLowSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const override {
    popart::Op::appendOutlineAttributes(os);
    os.appendAttribute("scale", scale_);
  }
  float scale() const { return scale_; }
  const std::string& codelets() const { return codelets_; }

 private:
  float scale_;
  std::string codelets_;
};

std::vector<std::unique_ptr<popart::Op>> ScaledCubeOp::getGradOps() {
  std::vector<std::unique_ptr<popart::Op>> ops;
  ops.push_back(std::make_unique<ScaledCubeGradOp>(*this));
  return ops;
}

/// One vertex per tile of the input, on the elements that lie there.
void addCube(poplar::Graph& graph, const poplar::Tensor& x, const poplar::Tensor& cube, const poplar::Tensor& slope,
             float scale, poplar::program::Sequence& prog, const poplar::DebugContext& context) {
  auto cs = graph.addComputeSet({context, "cube"});
  const auto flat = x.flatten();
  const auto mapping = graph.getTileMapping(flat);
  const auto vertex = poputil::templateVertex("example::ScaledCube", x.elementType());
  for (unsigned tile = 0; tile < mapping.size(); ++tile) {
    if (mapping[tile].empty()) continue;
    const auto part = poplar::concat(flat.slices(mapping[tile]));
    auto v = graph.addVertex(cs, vertex,
                             {{"x", part},
                              {"cube", poplar::concat(cube.flatten().slices(mapping[tile]))},
                              {"slope", poplar::concat(slope.flatten().slices(mapping[tile]))}});
    graph.setInitialValue(v["size"], static_cast<unsigned>(part.numElements()));
    graph.setInitialValue(v["scale"], scale);
    graph.setPerfEstimate(v, 10 * part.numElements());
    graph.setTileMapping(v, tile);
  }
  prog.add(poplar::program::Execute(cs, context));
}

class ScaledCubeOpx : public popart::popx::Opx {
 public:
  ScaledCubeOpx(popart::Op* op, popart::popx::Devicex* devicex) : popart::popx::Opx(op, devicex) {
    verifyOp<ScaledCubeOp>(op, kCube);
    graph().addCodelets(getOp<ScaledCubeOp>().codelets());
  }
  void grow(poplar::program::Sequence& prog) const override {
    const auto& x = getInTensor(0);
    auto cube = popops::createOutputForElementWiseOp(graph(), {x}, x.elementType(), debugContext("cube"));
    auto slope = graph().clone(x, debugContext("slope"));
    addCube(graph(), x, cube, slope, getOp<ScaledCubeOp>().scale(), prog, debugContext());
    setOutTensor(0, cube);
    setOutTensor(1, slope);
  }
};

class ScaledCubeGradOpx : public popart::popx::Opx {
 public:
  ScaledCubeGradOpx(popart::Op* op, popart::popx::Devicex* devicex) : popart::popx::Opx(op, devicex) {
    verifyOp<ScaledCubeGradOp>(op, kCubeGrad);
    graph().addCodelets(getOp<ScaledCubeGradOp>().codelets());
  }
  void grow(poplar::program::Sequence& prog) const override {
    const auto& x = getInTensor(0);
    auto dx = graph().clone(x, debugContext("dx"));
    auto cs = graph().addComputeSet(debugContext("cubeGrad"));
    const auto flat = x.flatten();
    const auto mapping = graph().getTileMapping(flat);
    for (unsigned tile = 0; tile < mapping.size(); ++tile) {
      if (mapping[tile].empty()) continue;
      auto v = graph().addVertex(cs, poputil::templateVertex("example::ScaledCubeGrad", x.elementType()));
      const auto rows = [&](const poplar::Tensor& t) { return t.flatten().slices(mapping[tile]); };
      graph().connect(v["x"], rows(x));
      graph().connect(v["dcube"], hasInput(1) ? rows(getInTensor(1)) : std::vector<poplar::Tensor>());
      graph().connect(v["dslope"], hasInput(2) ? rows(getInTensor(2)) : std::vector<poplar::Tensor>());
      graph().connect(v["dx"], rows(dx));
      graph().setInitialValue(v["scale"], getOp<ScaledCubeGradOp>().scale());
      graph().setPerfEstimate(v, 20);
      graph().setTileMapping(v, tile);
    }
    prog.add(poplar::program::Execute(cs, debugContext()));
    setOutTensor(0, dx);
  }
};

popart::OpDefinition::DataTypes kTypes = {popart::DataType::FLOAT16, popart::DataType::FLOAT};
popart::OpCreator<ScaledCubeOp> cubeCreator(
    popart::OpDefinitions({{kCube,
                            {popart::OpDefinition::Inputs({{"x", kTypes}}),
                             popart::OpDefinition::Outputs({{"cube", kTypes}, {"slope", kTypes}}),
                             popart::OpDefinition::Attributes({{"scale", {"*"}}, {"codelets", {"*"}}})}}}),
    [](const popart::OpCreatorInfo& info) -> std::unique_ptr<popart::Op> {
      return std::make_unique<ScaledCubeOp>(info.opid, info.settings,
                                            info.attributes.getAttribute<popart::Attributes::Float>("scale", 1.0f),
                                            info.attributes.getAttribute<popart::Attributes::String>("codelets"));
    },
    true);
popart::popx::OpxCreator<ScaledCubeOpx> cubeOpxCreator(kCube);
popart::popx::OpxCreator<ScaledCubeGradOpx> cubeGradOpxCreator(kCubeGrad);
popart::RegisterShapeInferenceFunction cubeShapes(kCube, [](auto& context) {
  context.outInfo(0) = context.inInfo(0);
  context.outInfo(1) = context.inInfo(0);
});

}  // namespace
