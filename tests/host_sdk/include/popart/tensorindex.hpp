// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <map>
#include <popart/names.hpp>
#include <vector>

namespace popart {

class Tensor;

class TensorIndexMap {
 public:
  void insert(int index, Tensor* tensor) { tensor_map[index] = tensor; }
  void erase(int index) { tensor_map.erase(index); }
  Tensor* tensor(int index);
  const Tensor* tensor(int index) const;
  TensorId id(int index) const;
  bool hasIndex(int index) const { return tensor_map.count(index) > 0; }
  const std::map<int, Tensor*>& tensorMap() const { return tensor_map; }
  int n() const { return static_cast<int>(tensor_map.size()); }

 private:
  std::map<int, Tensor*> tensor_map;
};

}  // namespace popart
