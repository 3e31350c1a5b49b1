// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#include <algorithm>
#include <cmath>
#include <limits>
#include <popops/Cast.hpp>
#include <popops/ElementWise.hpp>
#include <popops/ElementWiseUtil.hpp>
#include <popops/Fill.hpp>
#include <popops/Reduce.hpp>
#include <popops/Zero.hpp>
#include <poputil/TileMapping.hpp>
#include <poputil/exceptions.hpp>

#include "runtime.hpp"

namespace popops {
namespace {

using poplar::Tensor;
using poplar::Type;
using poputil::poplibs_error;

double rounded(const Type& type, double value) {
  if (type == poplar::BOOL) return value != 0;
  if (!type.hostIsFloating()) return std::trunc(value);
  std::uint32_t bits = 0;
  host_sdk::storeNumber(type.toString(), value, &bits);
  return host_sdk::loadNumber(type.toString(), &bits);
}

std::vector<double> numbers(const Tensor& t) {
  const std::string type = t.elementType().toString();
  const unsigned bytes = t.elementType().hostSize();
  std::vector<std::uint8_t> raw(t.numElements() * bytes);
  t.hostGraph()->host().read(t, raw.data());
  std::vector<double> out(t.numElements());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = host_sdk::loadNumber(type, &raw[i * bytes]);
  return out;
}

void store(const Tensor& t, const std::vector<double>& values) {
  const std::string type = t.elementType().toString();
  const unsigned bytes = t.elementType().hostSize();
  std::vector<std::uint8_t> raw(t.numElements() * bytes);
  for (std::size_t i = 0; i < values.size(); ++i) host_sdk::storeNumber(type, values[i], &raw[i * bytes]);
  t.hostGraph()->host().write(t, raw.data());
}

void requireWriteable(const Tensor& t, const char* what) {
  if (!t.isParallelWriteable()) throw poplibs_error(std::string(what) + ": the output is a constant or has aliases");
}

std::vector<Type> typesOf(const std::vector<Tensor>& ts) {
  std::vector<Type> types;
  for (const auto& t : ts) types.push_back(t.elementType());
  return types;
}

void addMap(const expr::Expr& expression, std::vector<Tensor> ts, const Tensor& out, poplar::program::Sequence& prog,
            const poplar::DebugContext& debugContext) {
  requireWriteable(out, "popops::map");
  const auto inferred = expression.infer(typesOf(ts));
  if (inferred.type != out.elementType()) {
    throw poplibs_error("popops::map: the expression is of type " + inferred.type.toString() + ", the output of type " +
                        out.elementType().toString());
  }
  std::shared_ptr<expr::Expr> copy = expression.clone();
  std::vector<Tensor> flat;
  for (const auto& t : ts) flat.push_back(t.flatten());
  const auto run = [copy, ts, out] {
    const auto types = typesOf(ts);
    std::vector<std::vector<double>> values;
    for (const auto& t : ts) values.push_back(numbers(t));
    std::vector<double> result(out.numElements());
    std::vector<double> element(ts.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      for (std::size_t k = 0; k < ts.size(); ++k) element[k] = values[k][values[k].size() == 1 ? 0 : i];
      result[i] = copy->evaluate(types, element.data(), out.elementType());
    }
    store(out, result);
  };
  prog.add(poplar::program::HostStep(ts.empty() ? out : ts.front(), out, run, debugContext));
}

}  // namespace

namespace expr {
namespace {

Expr::Inferred join(const Expr::Inferred& a, const Expr::Inferred& b) {
  if (a.weak && !b.weak) return b;
  if (b.weak && !a.weak) return a;
  if (a.type != b.type) {
    throw poplibs_error("popops::map: arguments of types " + a.type.toString() + " and " + b.type.toString());
  }
  return a;
}

bool isComparison(BinaryOpType op) {
  return op == BinaryOpType::EQUAL || op == BinaryOpType::NOT_EQUAL || op == BinaryOpType::GREATER_THAN ||
         op == BinaryOpType::GREATER_THAN_EQUAL || op == BinaryOpType::LESS_THAN ||
         op == BinaryOpType::LESS_THAN_EQUAL || op == BinaryOpType::LOGICAL_AND || op == BinaryOpType::LOGICAL_OR;
}

}  // namespace

Expr::Inferred Const::infer(const std::vector<Type>&) const { return {type_, true}; }
double Const::evaluate(const std::vector<Type>&, const double*, const Type& type) const {
  return rounded(type, value_);
}

Expr::Inferred Cast::infer(const std::vector<Type>& inputs) const {
  a_->infer(inputs);
  return {type_, false};
}
double Cast::evaluate(const std::vector<Type>& inputs, const double* values, const Type&) const {
  return rounded(type_, a_->evaluate(inputs, values, a_->infer(inputs).type));
}

Expr::Inferred PlaceHolder::infer(const std::vector<Type>& inputs) const {
  if (index_ == 0 || index_ > inputs.size()) {
    throw poplibs_error("popops::map: placeholder _" + std::to_string(index_) + " of " + std::to_string(inputs.size()) +
                        " tensors");
  }
  return {inputs[index_ - 1], false};
}
double PlaceHolder::evaluate(const std::vector<Type>&, const double* values, const Type&) const {
  return values[index_ - 1];
}

Expr::Inferred UnaryOp::infer(const std::vector<Type>& inputs) const { return a_->infer(inputs); }
double UnaryOp::evaluate(const std::vector<Type>& inputs, const double* values, const Type& type) const {
  const double x = a_->evaluate(inputs, values, type);
  const auto compute = [&]() -> double {
    switch (op_) {
      case UnaryOpType::ABSOLUTE:
        return std::fabs(x);
      case UnaryOpType::CEIL:
        return std::ceil(x);
      case UnaryOpType::COS:
        return std::cos(x);
      case UnaryOpType::ERF:
        return std::erf(x);
      case UnaryOpType::EXPONENT:
        return std::exp(x);
      case UnaryOpType::FLOOR:
        return std::floor(x);
      case UnaryOpType::INVERSE:
        return 1 / x;
      case UnaryOpType::LOGARITHM:
        return std::log(x);
      case UnaryOpType::LOGARITHM_ONE_PLUS:
        return std::log1p(x);
      case UnaryOpType::LOGICAL_NOT:
        return x == 0;
      case UnaryOpType::NEGATE:
        return -x;
      case UnaryOpType::RELU:
        return x > 0 ? x : 0;
      case UnaryOpType::SIGNUM:
        return (x > 0) - (x < 0);
      case UnaryOpType::SIN:
        return std::sin(x);
      case UnaryOpType::TANH:
        return std::tanh(x);
      case UnaryOpType::SQRT:
        return std::sqrt(x);
      case UnaryOpType::SQUARE:
        return x * x;
      case UnaryOpType::SIGMOID:
        return 1 / (1 + std::exp(-x));
      case UnaryOpType::RSQRT:
        return 1 / std::sqrt(x);
    }
    return std::numeric_limits<double>::quiet_NaN();
  };
  return rounded(type, compute());
}

Expr::Inferred BinaryOp::infer(const std::vector<Type>& inputs) const {
  const Inferred operands = join(a_->infer(inputs), b_->infer(inputs));
  return isComparison(op_) ? Inferred{poplar::BOOL, false} : operands;
}
double BinaryOp::evaluate(const std::vector<Type>& inputs, const double* values, const Type& type) const {
  const Type operands = isComparison(op_) ? join(a_->infer(inputs), b_->infer(inputs)).type : type;
  const double a = a_->evaluate(inputs, values, operands);
  const double b = b_->evaluate(inputs, values, operands);
  const auto compute = [&]() -> double {
    switch (op_) {
      case BinaryOpType::ADD:
        return a + b;
      case BinaryOpType::DIVIDE:
        return a / b;
      case BinaryOpType::EQUAL:
        return a == b;
      case BinaryOpType::GREATER_THAN_EQUAL:
        return a >= b;
      case BinaryOpType::GREATER_THAN:
        return a > b;
      case BinaryOpType::LESS_THAN_EQUAL:
        return a <= b;
      case BinaryOpType::LOGICAL_AND:
        return a != 0 && b != 0;
      case BinaryOpType::LOGICAL_OR:
        return a != 0 || b != 0;
      case BinaryOpType::LESS_THAN:
        return a < b;
      case BinaryOpType::MAXIMUM:
        return std::max(a, b);
      case BinaryOpType::MINIMUM:
        return std::min(a, b);
      case BinaryOpType::MULTIPLY:
        return a * b;
      case BinaryOpType::NOT_EQUAL:
        return a != b;
      case BinaryOpType::POWER:
        return std::pow(a, b);
      case BinaryOpType::SUBTRACT:
        return a - b;
    }
    return std::numeric_limits<double>::quiet_NaN();
  };
  return rounded(type, compute());
}

Expr::Inferred TernaryOp::infer(const std::vector<Type>& inputs) const {
  const Inferred value = join(a_->infer(inputs), b_->infer(inputs));
  if (op_ == TernaryOpType::CLAMP) return join(value, c_->infer(inputs));
  if (c_->infer(inputs).type != poplar::BOOL) throw poplibs_error("popops::map: the condition of Select is not a bool");
  return value;
}
double TernaryOp::evaluate(const std::vector<Type>& inputs, const double* values, const Type& type) const {
  const double a = a_->evaluate(inputs, values, type);
  const double b = b_->evaluate(inputs, values, type);
  if (op_ == TernaryOpType::SELECT) return c_->evaluate(inputs, values, poplar::BOOL) != 0 ? a : b;
  return std::min(std::max(a, b), c_->evaluate(inputs, values, type));
}

}  // namespace expr

Tensor createOutputForElementWiseOp(poplar::Graph& graph, const std::vector<Tensor>& inputs, const Type& outputType,
                                    const poplar::DebugContext& debugContext) {
  if (inputs.empty()) throw poplibs_error("createOutputForElementWiseOp: no input");
  const Tensor* best = nullptr;
  std::size_t best_load = 0;
  for (const auto& input : inputs) {
    if (input.shape() != inputs[0].shape()) throw poplibs_error("createOutputForElementWiseOp: shapes differ");
    if (input.containsAliases()) continue;
    std::size_t load = 0;
    for (const auto& intervals : graph.getTileMapping(input)) {
      std::size_t n = 0;
      for (const auto& interval : intervals) n += interval.size();
      load = std::max(load, n);
    }
    if (best && load >= best_load) continue;
    best = &input;
    best_load = load;
  }
  if (best) return graph.clone(outputType, *best, debugContext);
  Tensor out = graph.addVariable(outputType, inputs[0].shape(), debugContext);
  poputil::mapTensorLinearly(graph, out, 0, graph.getTarget().getVectorWidth(outputType));
  return out;
}

Tensor map(poplar::Graph& graph, const expr::Expr& expression, const std::vector<Tensor>& ts,
           poplar::program::Sequence& prog, const poplar::DebugContext& debugContext, const poplar::OptionFlags&) {
  if (ts.empty()) throw poplibs_error("popops::map of no tensors");
  const Tensor* shaped = &ts.front();
  for (const auto& t : ts) {
    if (t.numElements() > shaped->numElements()) shaped = &t;
  }
  std::vector<Tensor> same_shape;
  for (const auto& t : ts) {
    if (t.shape() == shaped->shape()) {
      same_shape.push_back(t);
    } else if (t.numElements() != 1) {
      throw poplibs_error("popops::map: shapes " + t.shapeToString() + " and " + shaped->shapeToString() +
                          "; the model broadcasts single elements only");
    }
  }
  const Type type = expression.infer(typesOf(ts)).type;
  Tensor out = createOutputForElementWiseOp(graph, same_shape, type, debugContext);
  addMap(expression, ts, out, prog, debugContext);
  return out;
}

void mapInPlace(poplar::Graph&, const expr::Expr& expression, const std::vector<Tensor>& ts,
                poplar::program::Sequence& prog, const poplar::DebugContext& debugContext, const poplar::OptionFlags&) {
  addMap(expression, ts, ts.at(0), prog, debugContext);
}

void mapWithOutput(poplar::Graph&, const expr::Expr& expression, const std::vector<Tensor>& ts, const Tensor& out,
                   poplar::program::Sequence& prog, const poplar::DebugContext& debugContext,
                   const poplar::OptionFlags&) {
  addMap(expression, ts, out, prog, debugContext);
}

template <typename FillValueType>
void fill(poplar::Graph&, const Tensor& t, poplar::program::Sequence& prog, FillValueType fillValue,
          const poplar::DebugContext& debugContext) {
  requireWriteable(t, "popops::fill");
  const double value = static_cast<double>(fillValue);
  const auto run = [t, value] { store(t, std::vector<double>(t.numElements(), value)); };
  prog.add(poplar::program::HostStep(t, t, run, debugContext));
}
template void fill<float>(poplar::Graph&, const Tensor&, poplar::program::Sequence&, float,
                          const poplar::DebugContext&);
template void fill<int>(poplar::Graph&, const Tensor&, poplar::program::Sequence&, int, const poplar::DebugContext&);
template void fill<unsigned>(poplar::Graph&, const Tensor&, poplar::program::Sequence&, unsigned,
                             const poplar::DebugContext&);

void zero(poplar::Graph& graph, const Tensor& t, poplar::program::Sequence& prog,
          const poplar::DebugContext& debugContext) {
  fill(graph, t, prog, 0, debugContext);
}

poplar::program::Program cast(poplar::Graph&, Tensor src, Tensor dst, const poplar::DebugContext& debugContext) {
  requireWriteable(dst, "popops::cast");
  if (src.shape() != dst.shape()) throw poplibs_error("popops::cast: shapes differ");
  const auto run = [src, dst] {
    auto values = numbers(src);
    for (auto& value : values) value = rounded(dst.elementType(), value);
    store(dst, values);
  };
  return poplar::program::HostStep(src, dst, run, debugContext);
}

Tensor cast(poplar::Graph& graph, const Tensor& src, const Type& dstType, poplar::program::Sequence& prog,
            const poplar::DebugContext& debugContext) {
  Tensor dst = graph.clone(dstType, src, debugContext);
  prog.add(cast(graph, src, dst, debugContext));
  return dst;
}

void reduceWithOutput(poplar::Graph&, const Tensor& in, const Tensor& out, const std::vector<std::size_t>& dims,
                      ReduceParams params, poplar::program::Sequence& prog, const poplar::DebugContext& debugContext,
                      const poplar::OptionFlags&) {
  requireWriteable(out, "popops::reduce");
  std::vector<unsigned> kept;
  std::vector<std::size_t> shape;
  for (unsigned d = 0; d < in.rank(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
    kept.push_back(d);
    shape.push_back(in.dim(d));
  }
  if (out.shape() != shape) throw poplibs_error("popops::reduce: output of shape " + out.shapeToString());
  if (params.op != Operation::ADD && params.op != Operation::MAX && params.op != Operation::MIN) {
    throw poplibs_error("popops::reduce: the model has ADD, MAX and MIN");
  }
  std::vector<unsigned> order = kept;
  for (const auto d : dims) order.push_back(static_cast<unsigned>(d));
  const Tensor rows = in.dimShuffle(order).flatten();
  const auto run = [rows, out, params] {
    const auto values = numbers(rows);
    auto result = numbers(out);
    const std::size_t n = result.empty() ? 0 : values.size() / result.size();
    for (std::size_t i = 0; i < result.size(); ++i) {
      // Summed in float, as the IPU does for half as well.
      float sum = 0.0f;
      double extreme = n ? values[i * n] : 0;
      for (std::size_t k = 0; k < n; ++k) {
        const double v = values[i * n + k];
        sum += static_cast<float>(v);
        extreme = params.op == Operation::MAX ? std::max(extreme, v) : std::min(extreme, v);
      }
      double value = params.op == Operation::ADD ? static_cast<double>(sum) : extreme;
      if (params.useScale) value *= numbers(params.scale)[0];
      result[i] = params.update ? result[i] + value : value;
    }
    store(out, result);
  };
  prog.add(poplar::program::HostStep(in, out, run, debugContext));
}

Tensor reduce(poplar::Graph& graph, const Tensor& in, const Type& outType, const std::vector<std::size_t>& dims,
              ReduceParams params, poplar::program::Sequence& prog, const poplar::DebugContext& debugContext,
              const poplar::OptionFlags& options) {
  if (params.update) throw poplibs_error("popops::reduce: update needs an output, use reduceWithOutput");
  std::vector<std::size_t> shape;
  for (unsigned d = 0; d < in.rank(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) shape.push_back(in.dim(d));
  }
  Tensor out = graph.addVariable(outType, shape, debugContext);
  poputil::mapTensorLinearly(graph, out);
  reduceWithOutput(graph, in, out, dims, params, prog, debugContext, options);
  return out;
}

Tensor reduce(poplar::Graph& graph, const Tensor& in, const std::vector<std::size_t>& dims, ReduceParams params,
              poplar::program::Sequence& prog, const poplar::DebugContext& debugContext,
              const poplar::OptionFlags& options) {
  return reduce(graph, in, in.elementType(), dims, params, prog, debugContext, options);
}

}  // namespace popops
