// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <functional>
#include <map>
#include <popart/attributes.hpp>
#include <popart/names.hpp>
#include <popart/operatoridentifier.hpp>
#include <popart/tensorinfo.hpp>
#include <string>

namespace popart {

class ShapeInferenceContext {
 public:
  ShapeInferenceContext(const std::map<int, TensorInfo>& inputInfos_, const Attributes& attributes_, int outputSize_)
      : inputInfos(inputInfos_), attributes(attributes_), outputSize(outputSize_) {}
  const TensorInfo& inInfo(int index) const { return inputInfos.at(index); }
  const Shape& inShape(int index) const { return inInfo(index).shape(); }
  const Shape& outShape(int index) const { return outputInfos.at(index).shape(); }
  DataType inType(int index) const { return inInfo(index).dataType(); }
  TensorInfo& outInfo(int index) { return outputInfos[index]; }
  const std::map<int, TensorInfo>& getOutputInfos() { return outputInfos; }
  const Attributes& getAttributes() const { return attributes; }
  int getNumInputs() const { return static_cast<int>(inputInfos.size()); }
  int getNumOutputs() const { return outputSize; }
  bool hasAttribute(const std::string& key) const { return attributes.hasAttribute(key); }
  template <typename T>
  T getAttribute(const std::string& key) {
    return attributes.getAttribute<T>(key);
  }
  template <typename T>
  T getAttribute(const std::string& key, const T& defaultValue) {
    return attributes.getAttribute<T>(key, defaultValue);
  }

 private:
  std::map<int, TensorInfo> inputInfos;
  std::map<int, TensorInfo> outputInfos;
  Attributes attributes;
  int outputSize;
};

using ShapeInferenceFunction = std::function<void(ShapeInferenceContext&)>;

class RegisterShapeInferenceFunction {
 public:
  RegisterShapeInferenceFunction(const OperatorIdentifier& opid, ShapeInferenceFunction function);
};

class ShapeInferenceFunctions {
 public:
  static void registerFunction(const OperatorIdentifier& opid, ShapeInferenceFunction function);
  static bool hasFunction(const OperatorIdentifier& opid);
  static ShapeInferenceFunction getFunction(const OperatorIdentifier& opid);
};

}  // namespace popart
