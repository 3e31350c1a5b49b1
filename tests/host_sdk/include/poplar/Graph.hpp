// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "poplar/ArrayRef.hpp"
#include "poplar/DebugContext.hpp"
#include "poplar/GraphElements.hpp"
#include "poplar/Interval.hpp"
#include "poplar/OptionFlags.hpp"
#include "poplar/Target.hpp"
#include "poplar/Tensor.hpp"
#include "poplar/TensorCloneMethod.hpp"
#include "poplar/Type.hpp"
#include "poplar/VariableMappingMethod.hpp"
#include "poplar/exceptions.hpp"

namespace host_sdk {
class GraphState;
}

namespace poplar {

enum class CodeletFileType { Auto, PreprocessedAsmSource, AsmSource, CSource, CppSource, IrSource, Object };

class Graph {
 public:
  using TileToTensorMapping = std::vector<std::vector<Interval>>;

  struct ConnectionDesc {
    ConnectionDesc(StringRef field, const Tensor& tensor) : field(field), tensors{tensor} {}
    ConnectionDesc(StringRef field, const std::vector<Tensor>& tensors) : field(field), tensors(tensors), list(true) {}
    ConnectionDesc(StringRef field, ArrayRef<Tensor> tensors)
        : field(field), tensors(tensors.cloneAsVector()), list(true) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    ConnectionDesc(StringRef field, T value) : field(field), constant(static_cast<double>(value)), is_constant(true) {}

    std::string field;
    std::vector<Tensor> tensors;
    bool list = false;
    double constant = 0;
    bool is_constant = false;
  };

  explicit Graph(const Target& target);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const Target& getTarget() const;

  bool addCodelets(StringRef src, CodeletFileType type = CodeletFileType::Auto, StringRef compileFlags = "",
                   StringRef targetName = "");

  Tensor addVariable(const Type& type, ArrayRef<std::size_t> shape, const DebugContext& debugContext = {});
  Tensor addVariable(const Type& type, ArrayRef<std::size_t> shape, VariableMappingMethod mappingMethod,
                     const DebugContext& debugContext = {});
  template <typename T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  Tensor addConstant(const Type& type, ArrayRef<std::size_t> shape, T value,
                     const DebugContext& debugContext = {"<const>"}) {
    const double wide = static_cast<double>(value);
    return addConstantValues(type, shape, &wide, 1, debugContext);
  }
  template <typename T>
  Tensor addConstant(const Type& type, ArrayRef<std::size_t> shape, const T* values,
                     const DebugContext& debugContext = {"<const>"}) {
    std::size_t n = 1;
    for (auto d : shape) n *= d;
    return addConstant(type, shape, ArrayRef<T>(values, n), debugContext);
  }
  template <typename T>
  Tensor addConstant(const Type& type, ArrayRef<std::size_t> shape, ArrayRef<T> values,
                     const DebugContext& debugContext = {"<const>"}) {
    const std::vector<double> wide(values.begin(), values.end());
    return addConstantValues(type, shape, wide.data(), wide.size(), debugContext);
  }

  Tensor clone(const Tensor& t, const DebugContext& debugContext = {},
               TensorCloneMethod method = TensorCloneMethod::PRESERVE_ORDER_UNLESS_ALIASES);
  Tensor clone(const Type& type, const Tensor& t, const DebugContext& debugContext = {},
               TensorCloneMethod method = TensorCloneMethod::PRESERVE_ORDER_UNLESS_ALIASES);

  ComputeSet addComputeSet(const DebugContext& debugContext = {});
  VertexRef addVertex(ComputeSet cs, StringRef vertexType);
  VertexRef addVertex(ComputeSet cs, StringRef vertexType, ArrayRef<ConnectionDesc> connections);
  void connect(FieldRef field, const Tensor& tensor);
  void connect(FieldRef field, ArrayRef<Tensor> tensors);
  template <typename T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  void connect(FieldRef field, T value) {
    connectConstant(field, static_cast<double>(value));
  }
  template <typename T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  void setInitialValue(FieldRef field, T value) {
    const double wide = static_cast<double>(value);
    setFieldValues(field, &wide, 1, false);
  }
  template <typename T>
  void setInitialValue(FieldRef field, ArrayRef<T> values) {
    const std::vector<double> wide(values.begin(), values.end());
    setFieldValues(field, wide.data(), wide.size(), true);
  }
  template <typename T>
  void setInitialValue(FieldRef field, const std::vector<T>& values) {
    setInitialValue(field, ArrayRef<T>(values));
  }
  template <typename T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  void setInitialValue(const Tensor& t, T value) {
    const double wide = static_cast<double>(value);
    setTensorValues(t, &wide, 1);
  }
  template <typename T>
  void setInitialValue(const Tensor& t, ArrayRef<T> values) {
    const std::vector<double> wide(values.begin(), values.end());
    setTensorValues(t, wide.data(), wide.size());
  }
  template <typename T>
  void setInitialValue(const Tensor& t, const std::vector<T>& values) {
    setInitialValue(t, ArrayRef<T>(values));
  }

  void setTileMapping(VertexRef v, unsigned tileNum);
  void setTileMapping(const Tensor& t, unsigned tileNum);
  void setTileMapping(const Tensor& t, const TileToTensorMapping& mapping);
  TileToTensorMapping getTileMapping(const Tensor& t, bool requireComplete = true, bool allowExternal = false) const;
  TileToTensorMapping getTileMapping(const Tensor& t, bool* isComplete, bool allowExternal = false) const;
  std::vector<std::vector<Interval>> getSortedContiguousRegions(const Tensor& t, ArrayRef<Interval> regions,
                                                                bool removeAliasedIntervals = false,
                                                                std::vector<std::size_t>* aliases = nullptr) const;
  void reorderToSimplify(Tensor* t, ArrayRef<Tensor*> ts, bool requireSimplestOrder = true) const;
  void setPerfEstimate(const VertexRef& v, std::uint64_t cycles, std::uint64_t flops = 0);

  host_sdk::GraphState& host() const { return *state_; }

 private:
  Tensor addConstantValues(const Type& type, ArrayRef<std::size_t> shape, const double* values, std::size_t count,
                           const DebugContext& debugContext);
  void connectConstant(FieldRef field, double value);
  void setFieldValues(FieldRef field, const double* values, std::size_t count, bool list);
  void setTensorValues(const Tensor& t, const double* values, std::size_t count);

  std::unique_ptr<host_sdk::GraphState> state_;
};

}  // namespace poplar
