// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "poplar/ArrayRef.hpp"
#include "poplar/Interval.hpp"
#include "poplar/TensorCloneMethod.hpp"
#include "poplar/Type.hpp"

namespace poplar {

class Graph;

enum class UpsampleMethod { REPEAT };

/// A view of variables: a shape over a list of contiguous pieces.
class Tensor {
 public:
  /// A run of elements of one variable.
  struct Piece {
    unsigned variable;
    std::size_t begin;
    std::size_t size;
  };

  Tensor() = default;

  Type elementType() const { return type_; }
  std::vector<std::size_t> shape() const { return shape_; }
  unsigned rank() const { return static_cast<unsigned>(shape_.size()); }
  std::size_t dim(unsigned i) const;
  std::size_t numElements() const;
  bool valid() const { return graph_ != nullptr; }
  std::string shapeToString() const;

  Tensor operator[](std::size_t i) const;
  Tensor slice(std::size_t begin, std::size_t end, unsigned dimension) const;
  Tensor slice(std::size_t begin, std::size_t end) const { return slice(begin, end, 0); }
  Tensor slice(const Interval& region, unsigned dimension = 0) const {
    return slice(region.begin(), region.end(), dimension);
  }
  Tensor slice(ArrayRef<std::size_t> begin, ArrayRef<std::size_t> end) const;
  std::vector<Tensor> slices(ArrayRef<Interval> intervals, unsigned dimension = 0) const;
  std::vector<Tensor> slices(const std::vector<std::vector<Interval>>& intervals, unsigned dimension = 0) const;
  Tensor subSample(unsigned stride, unsigned dimension, unsigned offset = 0) const;
  Tensor flatten() const;
  Tensor flatten(unsigned dimBegin, unsigned dimEnd) const;
  Tensor reshape(ArrayRef<std::size_t> shape) const;
  Tensor dimShuffle(ArrayRef<unsigned> permutation) const;
  Tensor dimRoll(unsigned dimIdx, unsigned newIdx = 0) const;
  Tensor transpose() const;
  Tensor expand(ArrayRef<std::size_t> indices) const;
  Tensor broadcast(unsigned N, unsigned dimension) const;
  Tensor squeeze(ArrayRef<std::size_t> dimensions) const;
  Tensor reverse(unsigned dimension) const;
  Tensor reinterpret(const Type& type) const;

  bool isContiguous() const { return pieces().size() <= 1; }
  bool containsAliases() const;
  bool containsConstant() const;
  bool isParallelWriteable() const { return !containsAliases() && !containsConstant(); }
  bool intersectsWith(const Tensor& other) const;
  std::vector<Interval> getContiguousRegions() const;
  bool operator==(const Tensor& other) const;
  bool operator!=(const Tensor& other) const { return !(*this == other); }
  std::string getDebugStr() const;
  std::string getVarStr() const { return getDebugStr(); }

  // Host model only, below.
  Tensor(Graph* graph, const Type& type, std::vector<std::size_t> shape, std::vector<Piece> pieces);
  const std::vector<Piece>& pieces() const;
  /// The pieces of a range of the flattened elements.
  std::vector<Piece> take(std::size_t begin, std::size_t end) const;
  Graph* hostGraph() const { return graph_; }

 private:
  struct Layout {
    std::vector<Piece> pieces;
    std::vector<std::size_t> starts;  // of each piece in the flattened tensor
  };
  Tensor withShape(std::vector<std::size_t> shape) const;
  void takeInto(std::size_t begin, std::size_t end, std::vector<Piece>& out) const;

  Graph* graph_ = nullptr;
  Type type_;
  std::vector<std::size_t> shape_;
  std::shared_ptr<const Layout> layout_;
};

Tensor concat(ArrayRef<Tensor> tensors, unsigned dimension = 0);
Tensor concat(const Tensor& first, const Tensor& second, unsigned dimension = 0);
Tensor append(const Tensor& first, const Tensor& second, unsigned dimension = 0);

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace poplar
