// Ops that show what the model computes itself: attributes, views of tensors, mappings, and functions of PopLibs.
#include <functional>
#include <map>
#include <memory>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <popops/Cast.hpp>
#include <popops/ElementWise.hpp>
#include <popops/ElementWiseUtil.hpp>
#include <popops/Fill.hpp>
#include <popops/Reduce.hpp>
#include <popops/Zero.hpp>
#include <poputil/TileMapping.hpp>
#include <poputil/Util.hpp>
#include <sstream>
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

namespace pe = popops::expr;
using poplar::Tensor;
using poplar::program::Sequence;

const popart::OperatorIdentifier kDescribe{"host.example", "Describe", 1};
const popart::OperatorIdentifier kLibrary{"host.example", "Library", 1};

/// Says in an exception what the attributes read as.
class DescribeOp : public popart::Op {
 public:
  DescribeOp(const popart::OperatorIdentifier& opid, const popart::Op::Settings& settings, std::string text)
      : popart::Op(opid, settings), text_(std::move(text)) {}
  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<DescribeOp>(*this); }
  void setup() override { throw popart::error("{}", text_); }
  float getSubgraphValue() const override { return getLowSubgraphValue(); }

 private:
  std::string text_;
};

std::unique_ptr<popart::Op> describe(const popart::OpCreatorInfo& info) {
  using popart::Attributes;
  const auto& a = info.attributes;
  std::string text = popart::logging::format(
      "f {} i {} s {} ints {}", a.getAttribute<Attributes::Float>("f", -1.0f), a.getAttribute<Attributes::Int>("i", -1),
      a.getAttribute<Attributes::String>("s", "absent"), a.getAttribute<Attributes::Ints>("ints", {-1}));
  if (a.hasAttribute("floats"))
    text += " floats " + popart::logging::text(a.getAttribute<Attributes::Floats>("floats"));
  if (a.hasAttribute("strings")) {
    text += " strings " + popart::logging::text(a.getAttribute<Attributes::Strings>("strings"));
  }
  return std::make_unique<DescribeOp>(info.opid, info.settings, text);
}

class LibraryOp : public popart::Op {
 public:
  LibraryOp(const popart::OperatorIdentifier& opid, const popart::Op::Settings& settings,
            const popart::Attributes& attributes)
      : popart::Op(opid, settings),
        function(attributes.getAttribute<popart::Attributes::String>("function")),
        shape(attributes.getAttribute<popart::Attributes::Ints>("shape")),
        type(attributes.getAttribute<popart::Attributes::String>("type")) {}
  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<LibraryOp>(*this); }
  void setup() override { outInfo(0) = popart::TensorInfo(type, shape); }
  float getSubgraphValue() const override { return getLowSubgraphValue(); }

  std::string function;
  popart::Shape shape;
  std::string type;
};

struct Work {
  poplar::Graph& graph;
  Tensor x;
  Sequence& prog;
};

template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
template <class T>
std::string show(const std::vector<T>& values) {
  std::string out;
  for (const auto& value : values) out += (out.empty() ? "" : " ") + show(value);
  return "(" + out + ")";
}

[[noreturn]] void say(const std::string& text) { throw popart::error("{}", text); }

Tensor filled(Work& w, float value) {
  Tensor t = w.graph.clone(w.x);
  popops::fill(w.graph, t, w.prog, value);
  return t;
}

const std::map<std::string, std::function<Tensor(Work&)>>& functions() {
  static const std::map<std::string, std::function<Tensor(Work&)>> all = {
      {"transpose", [](Work& w) { return w.x.transpose(); }},
      {"roll", [](Work& w) { return w.x.reshape({2, 3, 4}).dimRoll(2, 0); }},
      {"shuffle_outer", [](Work& w) { return w.x.reshape({2, 3, 4}).dimShuffle({1, 0, 2}); }},
      {"subsample", [](Work& w) { return w.x.subSample(2, 1, 1); }},
      {"broadcast", [](Work& w) { return w.x.expand({1}).broadcast(2, 1); }},
      {"concat", [](Work& w) { return poplar::concat(w.x, w.x.reverse(0), 1); }},
      {"slice", [](Work& w) { return w.x.slice({1, 2}, {4, 4}); }},
      {"index", [](Work& w) { return w.x[2].slice(1, 3); }},
      {"slices", [](Work& w) { return poplar::concat(w.x.slices({{3, 4}, {0, 2}}, 1), 1); }},
      {"squeeze", [](Work& w) { return w.x.expand({0, 2}).squeeze({0}); }},
      {"reorder",
       [](Work& w) {
         // Both are put into the order of memory, so that they still match element by element.
         Tensor shuffled = w.x.transpose().flatten();
         Tensor twin = w.graph.clone(w.x.transpose()).flatten();
         w.prog.add(poplar::program::Copy(shuffled, twin));
         w.graph.reorderToSimplify(&shuffled, {&twin}, false);
         return twin;
       }},
      {"sorted_regions",
       [](Work& w) -> Tensor {
         const auto rows = w.x.dimShuffle({1, 0}).flatten();
         say(show(w.graph.getSortedContiguousRegions(rows, {{0, 3}, {6, 9}})));
       }},
      {"split_regions",
       [](Work&) -> Tensor { say(show(poputil::splitRegions({{0, 10}, {15, 20}, {33, 60}}, 4, 8, 6))); }},
      {"split_sequences",
       [](Work&) -> Tensor {
         const std::vector<std::vector<poplar::Interval>> rows = {{{0, 5}, {9, 12}}, {{20, 24}}};
         say(show(poputil::splitRegions(rows, 4, 3)));
       }},
      {"linear_mapping",
       [](Work& w) -> Tensor {
         Tensor t = w.graph.addVariable(poplar::HALF, {200});
         poputil::mapTensorLinearly(w.graph, t);
         std::string text;
         for (const auto& tile : w.graph.getTileMapping(t)) text += tile.empty() ? "" : show(tile);
         say(text);
       }},
      {"mapped_twice",
       [](Work& w) -> Tensor {
         Tensor t = w.graph.addVariable(poplar::FLOAT, {10});
         w.graph.setTileMapping(t, 0);
         w.graph.setTileMapping(t.slice(2, 4), 1);
         const auto mapping = w.graph.getTileMapping(t);
         say(show(mapping[0]) + show(mapping[1]));
       }},
      {"map_cube",
       [](Work& w) { return popops::map(w.graph, pe::Mul(pe::Mul(pe::_1, pe::_1), pe::_1), {w.x}, w.prog); }},
      {"map_step",
       [](Work& w) {
         return popops::map(w.graph, pe::Cast(pe::Gt(pe::_1, pe::Const(0.5f)), w.x.elementType()), {w.x}, w.prog);
       }},
      {"map_select_constants",
       [](Work& w) {
         const auto condition = pe::Gt(pe::_1, pe::Const(0.5f));
         return popops::map(w.graph, pe::Select(pe::Const(1.0f), pe::Const(0.0f), condition), {w.x}, w.prog);
       }},
      {"map_mixed",
       [](Work& w) {
         Tensor f = w.graph.clone(poplar::FLOAT, w.x);
         return popops::map(w.graph, pe::Add(pe::_1, pe::_2), {w.x, f}, w.prog);
       }},
      {"map_activations",
       [](Work& w) {
         const auto inner = pe::Add(pe::Sigmoid(pe::_1), pe::Tanh(pe::Abs(pe::_1)));
         return popops::map(w.graph, pe::Min(pe::Inv(pe::Square(inner)), pe::Exp(pe::Neg(pe::_1))), {w.x}, w.prog);
       }},
      {"reduce_rows", [](Work& w) { return popops::reduce(w.graph, w.x, {0}, {popops::Operation::ADD}, w.prog); }},
      {"reduce_max", [](Work& w) { return popops::reduce(w.graph, w.x, {1}, {popops::Operation::MAX}, w.prog); }},
      {"reduce_update",
       [](Work& w) {
         Tensor out = w.graph.addVariable(w.x.elementType(), {w.x.dim(1)});
         w.graph.setTileMapping(out, 3);
         popops::fill(w.graph, out, w.prog, 100.0f);
         popops::reduceWithOutput(w.graph, w.x, out, {0}, {popops::Operation::ADD, true}, w.prog);
         return out;
       }},
      {"cast", [](Work& w) { return popops::cast(w.graph, w.x, poplar::INT, w.prog); }},
      {"zero",
       [](Work& w) {
         Tensor t = w.graph.clone(w.x);
         popops::zero(w.graph, t, w.prog);
         return t;
       }},
      {"fill", [](Work& w) { return filled(w, 2.5f); }},
      {"repeat",
       [](Work& w) {
         Tensor t = filled(w, 1.0f);
         Sequence doubled;
         popops::mapInPlace(w.graph, pe::Add(pe::_1, pe::_1), {t}, doubled);
         w.prog.add(poplar::program::Repeat(5, doubled));
         return t;
       }},
      {"never_written", [](Work& w) { return w.graph.clone(w.x); }},
  };
  return all;
}

class LibraryOpx : public popart::popx::Opx {
 public:
  using popart::popx::Opx::Opx;
  void grow(Sequence& prog) const override {
    Work work{graph(), getInTensor(0), prog};
    const Tensor result = functions().at(getOp<LibraryOp>().function)(work);
    // A fresh tensor, as views of the input may not leave an op undeclared.
    Tensor out = graph().addVariable(result.elementType(), result.shape());
    poputil::mapTensorLinearly(graph(), out);
    prog.add(poplar::program::Copy(result, out));
    setOutTensor(0, out);
  }
};

popart::OpCreator<DescribeOp> describeCreator(popart::OpDefinitions({{kDescribe, {}}}), describe, true);
popart::OpCreator<LibraryOp> libraryCreator(
    popart::OpDefinitions({{kLibrary, {}}}),
    [](const popart::OpCreatorInfo& info) -> std::unique_ptr<popart::Op> {
      return std::make_unique<LibraryOp>(info.opid, info.settings, info.attributes);
    },
    true);
popart::popx::OpxCreator<LibraryOpx> libraryOpxCreator(kLibrary);

}  // namespace
