// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <popart/attributes.hpp>
#include <popart/datatype.hpp>
#include <popart/error.hpp>
#include <popart/names.hpp>
#include <popart/op.hpp>
#include <popart/operatoridentifier.hpp>
#include <popart/tensorinfo.hpp>
#include <string>
#include <utility>
#include <vector>

namespace popart {

class OpDefinition {
 public:
  struct Input {
    std::string name;
    std::vector<DataType> supportedTensors;
    bool constant;
    Input(std::string n, std::vector<DataType> t, bool _constant = false)
        : name(n), supportedTensors(t), constant(_constant) {}
  };
  struct Output {
    std::string name;
    std::vector<DataType> supportedTensors;
    Output(std::string n, std::vector<DataType> t) : name(n), supportedTensors(t) {}
  };
  struct Attribute {
    std::string supportedValuesRegex;
    Attribute(std::string regex) : supportedValuesRegex(regex) {}
  };
  using DataTypes = std::vector<DataType>;
  using Inputs = std::vector<Input>;
  using Outputs = std::vector<Output>;
  using Attributes = std::map<std::string, Attribute>;

  Inputs inputs;
  Outputs outputs;
  Attributes attributes;

  OpDefinition() {}
  OpDefinition(Inputs i, Outputs o, Attributes a) : inputs(i), outputs(o), attributes(a) {}
};

using OpDefinitions = std::map<OperatorIdentifier, OpDefinition, OperatorIdentifierLess>;

class OpCreatorInfo {
 public:
  const OperatorIdentifier& opid;
  const Op::Settings& settings;
  const Attributes& attributes;

  OpCreatorInfo(const OperatorIdentifier& _opid, const Op::Settings& _settings, const Attributes& _attributes,
                const std::vector<TensorId>& _inputIds, const std::vector<TensorId>& _outputIds)
      : opid(_opid), settings(_settings), attributes(_attributes), inputIds(_inputIds), outputIds(_outputIds) {}
  bool hasInputIds() const { return !inputIds.empty(); }
  bool hasOutputIds() const { return !outputIds.empty(); }
  const std::vector<TensorId>& getInputIds() const { return inputIds; }
  const std::vector<TensorId>& getOutputIds() const { return outputIds; }

 private:
  const std::vector<TensorId>& inputIds;
  const std::vector<TensorId>& outputIds;
};

class OpManager {
 public:
  using OpFactoryFunc = std::function<std::unique_ptr<Op>(const OpCreatorInfo&)>;

  class OpInfo {
   public:
    OpInfo(const OperatorIdentifier& _id, bool _isPublic, const OpDefinition& _details, OpFactoryFunc _f)
        : isPublic(_isPublic), id(_id), details(_details), factory(_f) {}
    bool isPublic;
    OperatorIdentifier id;
    OpDefinition details;
    OpFactoryFunc factory;
  };

  static void registerOp(const OpInfo& opInfo);
  /// The op of that name with the largest version that is at most opsetVersion, or null.
  static std::unique_ptr<Op> createOp(const OpDomain& domain, const OpType& type, int opsetVersion, Graph& graph,
                                      const std::string& name, const Attributes& attributes,
                                      const std::vector<TensorId>& inputIds, const std::vector<TensorId>& outputIds);

 private:
  OpManager() = default;
  static OpManager& getInstance();
  std::map<std::pair<OpDomain, OpType>, std::map<int, OpInfo>> opMap;
};

template <class OP>
class OpCreator {
 public:
  OpCreator(const OpDefinitions& opDefinitions, bool isPublic = true) {
    for (const auto& version : opDefinitions) {
      OpManager::OpFactoryFunc func = [](const OpCreatorInfo& info) -> std::unique_ptr<Op> {
        return std::unique_ptr<OP>(new OP(info.opid, info.settings));
      };
      OpManager::registerOp({version.first, isPublic, version.second, func});
    }
  }
  OpCreator(const OpDefinitions& opDefinitions, OpManager::OpFactoryFunc func, bool isPublic = true) {
    for (const auto& version : opDefinitions) {
      OpManager::registerOp({version.first, isPublic, version.second, func});
    }
  }
};

}  // namespace popart
