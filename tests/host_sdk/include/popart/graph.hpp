// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <map>
#include <memory>
#include <popart/names.hpp>
#include <popart/op.hpp>
#include <popart/tensor.hpp>
#include <vector>

namespace popart {

class Ir;

class Graph {
 public:
  explicit Graph(Ir& ir) : ir_(ir) {}
  Ir& getIr() { return ir_; }
  const Ir& getIr() const { return ir_; }
  bool hasTensor(const TensorId& id) const { return tensors.count(id) > 0; }
  Tensor& addTensor(const TensorId& id);
  Tensor& getTensor(const TensorId& id) { return *tensors.at(id); }
  Op& moveIntoGraph(std::unique_ptr<Op> op);
  /// Connects what is there; an empty id must be an optional input.
  void connectInputs(Op& op, const std::map<InIndex, TensorId>& inputs);

 private:
  Ir& ir_;
  std::map<TensorId, std::unique_ptr<Tensor>> tensors;
  std::vector<std::unique_ptr<Op>> ops;
};

}  // namespace popart
