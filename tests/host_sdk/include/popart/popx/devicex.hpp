// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <map>
#include <popart/ir.hpp>
#include <popart/names.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Tensor.hpp>

namespace popart {
namespace popx {

class Devicex {
 public:
  Devicex(Ir& ir, const poplar::Target& target) : ir_(ir), graph_(target) {}
  Ir& ir() { return ir_; }
  poplar::Graph& graph() { return graph_; }
  const poplar::Tensor& get(const TensorId& id) const;
  bool has(const TensorId& id) const { return tensors_.count(id) > 0; }
  /// Shape, but for leading ones, and type must be what the op's setup() said.
  void insert(const TensorId& id, const poplar::Tensor& tensor);

 private:
  Ir& ir_;
  poplar::Graph graph_;
  std::map<TensorId, poplar::Tensor> tensors_;
};

poplar::Type popType(const TensorInfo& info);
poplar::Type popType(DataType type);

}  // namespace popx
}  // namespace popart
