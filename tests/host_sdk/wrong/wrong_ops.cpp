// PopART ops with one mistake each; the attribute "mistake" says which. Input x, outputs y and z of the same kind.
#include <functional>
#include <map>
#include <memory>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <popops/ElementWise.hpp>
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
#pragma GCC diagnostic pop

namespace {

using poplar::Graph;
using poplar::Tensor;
using poplar::program::Sequence;

const popart::OperatorIdentifier kWrong{"host.wrong", "Wrong", 1};
const popart::OperatorIdentifier kWrongGrad{"host.wrong", "WrongGrad", 1};
const popart::OperatorIdentifier kNoOpx{"host.wrong", "NoOpx", 1};

class WrongOp : public popart::Op {
 public:
  WrongOp(const popart::OperatorIdentifier& opid, const popart::Op::Settings& settings,
          const popart::Attributes& attributes)
      : popart::Op(opid, settings),
        mistake(attributes.getAttribute<popart::Attributes::String>("mistake", "")),
        codelets(attributes.getAttribute<popart::Attributes::String>("codelets", "")),
        scale(attributes.getAttribute<popart::Attributes::Float>("scale", 2.0f)) {}

  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<WrongOp>(*this); }
  void setup() override {
    ++setups;
    if (mistake != "setup_sets_nothing") outInfo(0) = inInfo(0);
    if (mistake == "setup_changes_its_mind" && setups > 1) outInfo(0).set(inInfo(0).dataType(), {1, 1, 1});
    if (hasOutput(1)) outInfo(1) = inInfo(0);
  }
  std::vector<std::unique_ptr<popart::Op>> getGradOps() override;
  float getSubgraphValue() const override { return getLowSubgraphValue(); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const override {
    popart::Op::appendOutlineAttributes(os);
    os.appendAttribute("mistake", mistake);
    // Six digits: not enough to tell 1.0000001 from 1.
    if (mistake == "outline_loses_digits") os.appendAttribute("scale", scale);
  }

  std::string mistake;
  std::string codelets;
  float scale;
  int setups = 0;
};

/// dx = dy, whatever the mistake; z has no part in it but must have a gradient.
class WrongGradOp : public popart::Op {
 public:
  explicit WrongGradOp(const WrongOp& op) : popart::Op(kWrongGrad, op.getSettings()), mistake(op.mistake) {}
  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<WrongGradOp>(*this); }
  void setup() override {
    outInfo(0) = inInfo(0);
    if (mistake == "gradient_of_wrong_shape") outInfo(0).set(inInfo(0).dataType(), {1});
  }
  const std::vector<popart::GradInOutMapper>& gradInputInfo() const override {
    static const std::vector<popart::GradInOutMapper> info = {{0, 0, popart::GradOpInType::GradOut},
                                                              {1, 1, popart::GradOpInType::GradOut}};
    return info;
  }
  const std::map<int, int>& gradOutToNonGradIn() const override {
    static const std::map<int, int> info = {{0, 0}};
    return info;
  }
  float getSubgraphValue() const override { return getLowSubgraphValue(); }
  std::string mistake;
};

std::vector<std::unique_ptr<popart::Op>> WrongOp::getGradOps() {
  std::vector<std::unique_ptr<popart::Op>> ops;
  if (mistake != "no_gradient") ops.push_back(std::make_unique<WrongGradOp>(*this));
  return ops;
}

struct Build {
  Graph& graph;
  Tensor x;
  Sequence& prog;
  poplar::ComputeSet cs;

  Tensor fresh(unsigned tile = 0) {
    Tensor t = graph.addVariable(x.elementType(), x.shape(), "fresh");
    graph.setTileMapping(t, tile);
    return t;
  }
  poplar::VertexRef vertex(const std::string& name, unsigned tile = 0) {
    auto v = graph.addVertex(cs, "wrong::" + name);
    graph.setTileMapping(v, tile);
    graph.setPerfEstimate(v, 1);
    return v;
  }
  /// A right vertex: out = in + 1.
  poplar::VertexRef add(const Tensor& in, const Tensor& out, unsigned tile = 0) {
    auto v = vertex(poputil::templateVertex("AddBias", in.elementType()), tile);
    graph.connect(v["x"], in.flatten());
    graph.connect(v["y"], out.flatten());
    graph.setInitialValue(v["bias"], 1.0f);
    return v;
  }
  /// y computed from x by a codelet that is wrong itself.
  Tensor by(const std::string& codelet) {
    auto v = vertex(codelet);
    Tensor y = fresh();
    graph.connect(v["x"], x.flatten());
    graph.connect(v["y"], y.flatten());
    return y;
  }
};

using Mistake = std::function<Tensor(Build&)>;

const std::map<std::string, Mistake>& mistakes() {
  static const std::map<std::string, Mistake> all = {
      {"none",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(b.x, y);
         return y;
       }},
      {"tensor_not_mapped",
       [](Build& b) {
         Tensor y = b.graph.addVariable(b.x.elementType(), b.x.shape(), "nowhere");
         b.add(b.x, y);
         return y;
       }},
      {"constant_not_mapped",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(b.graph.addConstant(b.x.elementType(), b.x.shape(), 1.0f), y);
         return y;
       }},
      {"vertex_not_mapped",
       [](Build& b) {
         Tensor y = b.fresh();
         auto v = b.graph.addVertex(b.cs, "wrong::AddBias<float>", {{"x", b.x.flatten()}, {"y", y.flatten()}});
         b.graph.setInitialValue(v["bias"], 1.0f);
         b.graph.setPerfEstimate(v, 1);
         return y;
       }},
      {"no_perf_estimate",
       [](Build& b) {
         Tensor y = b.fresh();
         auto v = b.graph.addVertex(b.cs, "wrong::AddBias<float>", {{"x", b.x.flatten()}, {"y", y.flatten()}});
         b.graph.setInitialValue(v["bias"], 1.0f);
         b.graph.setTileMapping(v, 0);
         return y;
       }},
      {"field_not_connected",
       [](Build& b) {
         auto v = b.vertex("AddBias<float>");
         Tensor y = b.fresh();
         b.graph.connect(v["y"], y.flatten());
         b.graph.setInitialValue(v["bias"], 1.0f);
         return y;
       }},
      {"field_without_value",
       [](Build& b) {
         auto v = b.vertex("AddBias<float>");
         Tensor y = b.fresh();
         b.graph.connect(v["x"], b.x.flatten());
         b.graph.connect(v["y"], y.flatten());
         return y;
       }},
      {"no_such_field",
       [](Build& b) {
         auto v = b.vertex("AddBias<float>");
         b.graph.setInitialValue(v["offset"], 1.0f);
         return b.fresh();
       }},
      {"no_such_vertex",
       [](Build& b) {
         b.vertex("AddBias<int>");
         return b.fresh();
       }},
      {"no_such_tile",
       [](Build& b) {
         b.vertex("AddBias<float>", b.graph.getTarget().getNumTiles());
         return b.fresh();
       }},
      {"tensor_of_other_type",
       [](Build& b) {
         auto v = b.vertex("AddBias<half>");
         b.graph.connect(v["x"], b.x.flatten());
         return b.fresh();
       }},
      {"tensor_of_rank_two",
       [](Build& b) {
         auto v = b.vertex("AddBias<float>");
         b.graph.connect(v["x"], b.x.reshape({1, b.x.numElements()}));
         return b.fresh();
       }},
      {"one_tensor_for_a_list",
       [](Build& b) {
         auto v = b.vertex("CopyRows");
         b.graph.connect(v["x"], b.x.flatten());
         return b.fresh();
       }},
      {"state_connected",
       [](Build& b) {
         auto v = b.vertex("AddBias<float>");
         b.graph.connect(v["bias"], b.x.flatten());
         return b.fresh();
       }},
      {"two_write",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(b.x, y);
         b.add(b.x.flatten().slice(0, 1), y.flatten().slice(0, 1), 1);
         return y;
       }},
      {"one_reads_what_another_writes",
       [](Build& b) {
         Tensor middle = b.fresh(), y = b.fresh();
         b.add(b.x, middle);
         b.add(middle, y);
         return y;
       }},
      {"reads_and_writes_through_two_fields",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(y, y);
         return y;
       }},
      {"halves_of_one_word",
       [](Build& b) {
         Tensor y = b.fresh();
         const auto n = y.numElements();
         b.add(b.x.flatten().slice(0, 3), y.flatten().slice(0, 3));
         b.add(b.x.flatten().slice(3, n), y.flatten().slice(3, n));
         return y;
       }},
      {"writes_constant",
       [](Build& b) {
         Tensor y = b.graph.addConstant(b.x.elementType(), b.x.shape(), 1.0f);
         b.graph.setTileMapping(y, 0);
         b.add(b.x, y);
         return y;
       }},
      {"writes_broadcast",
       [](Build& b) {
         Tensor one = b.graph.addVariable(b.x.elementType(), {1}, "one");
         b.graph.setTileMapping(one, 0);
         Tensor y = one.broadcast(static_cast<unsigned>(b.x.numElements()), 0).reshape(b.x.shape());
         b.add(b.x, y);
         return y;
       }},
      {"short_span_too_long",
       [](Build& b) {
         auto v = b.vertex("ShortSpan");
         b.graph.connect(v["x"], b.x.flatten());
         return b.fresh();
       }},
      {"value_too_large_for_field",
       [](Build& b) {
         auto v = b.vertex("ShortSpan");
         b.graph.setInitialValue(v["count"], 70000);
         return b.fresh();
       }},
      {"too_much_for_a_tile",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(b.x, y);
         Tensor large = b.graph.addVariable(poplar::FLOAT, {150000}, "large");
         b.graph.setTileMapping(large, 0);
         return y;
       }},
      {"in_place",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(b.x, y);
         Sequence scaled;
         popops::mapInPlace(b.graph, popops::expr::Mul(popops::expr::_1, popops::expr::Const(2.0f)), {b.x}, scaled);
         b.prog.add(scaled);
         return y;
       }},
      {"returns_input", [](Build& b) { return b.x; }},
      {"output_of_other_shape",
       [](Build& b) {
         Tensor y = b.fresh();
         b.add(b.x, y);
         return y.flatten().reshape({b.x.numElements(), 1});
       }},
      {"output_of_other_type",
       [](Build& b) {
         Tensor y = b.graph.addVariable(poplar::HALF, b.x.shape());
         b.graph.setTileMapping(y, 0);
         return y;
       }},
      {"output_not_set", [](Build&) { return Tensor(); }},
      {"chained_workers",
       [](Build& b) {
         Tensor y = b.fresh();
         b.prog.add(poplar::program::Copy(b.x, y));
         auto v = b.vertex("ChainsWorkers");
         b.graph.connect(v["x"], b.x.flatten());
         b.graph.connect(v["y"], y.flatten());
         return y;
       }},
  };
  return all;
}

class WrongOpx : public popart::popx::Opx {
 public:
  WrongOpx(popart::Op* op, popart::popx::Devicex* devicex) : popart::popx::Opx(op, devicex) {
    graph().addCodelets(getOp<WrongOp>().codelets);
  }
  void grow(Sequence& prog) const override {
    Build build{graph(), getInTensor(0), prog, graph().addComputeSet(debugContext("work"))};
    const std::string mistake = getOp<WrongOp>().mistake;
    const auto found = mistakes().find(mistake);
    Tensor y;
    if (found != mistakes().end()) {
      y = found->second(build);
    } else if (mistake.rfind("codelet:", 0) == 0) {
      y = build.by(mistake.substr(8));
    } else {
      y = mistakes().at("none")(build);
    }
    prog.add(poplar::program::Execute(build.cs));
    if (y.valid()) setOutTensor(0, y);
    if (hasOutput(1)) setOutTensor(1, mistake == "outputs_share_memory" ? y : cloneNcopy(prog, getInTensor(0)));
  }
};

class WrongGradOpx : public popart::popx::Opx {
 public:
  using popart::popx::Opx::Opx;
  void grow(Sequence& prog) const override { setOutTensor(0, cloneNcopy(prog, getInTensor(0))); }
};

std::unique_ptr<popart::Op> make(const popart::OpCreatorInfo& info) {
  return std::make_unique<WrongOp>(info.opid, info.settings, info.attributes);
}
popart::OpCreator<WrongOp> wrongCreator(popart::OpDefinitions({{kWrong, {}}, {kNoOpx, {}}}), make, true);
popart::popx::OpxCreator<WrongOpx> wrongOpxCreator(kWrong);
popart::popx::OpxCreator<WrongGradOpx> wrongGradOpxCreator(kWrongGrad);

}  // namespace
