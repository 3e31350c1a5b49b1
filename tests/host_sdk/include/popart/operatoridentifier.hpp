// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <ostream>
#include <popart/names.hpp>
#include <string>
#include <tuple>

namespace popart {

namespace Domain {
constexpr const char* ai_onnx = "ai.onnx";
constexpr const char* ai_graphcore = "ai.graphcore";
}  // namespace Domain

struct NumInputs {
  int min = 0;
  int max = 0;
  NumInputs() = default;
  NumInputs(int f) : min(f), max(f) {}
  NumInputs(int _min, int _max) : min(_min), max(_max) {}
};

struct OperatorIdentifier {
  OperatorIdentifier(const OpDomain& _domain, const OpType& _type, OpVersion _version, NumInputs inputs = {},
                     int outputs = 0)
      : domain(_domain.empty() ? Domain::ai_onnx : _domain),
        type(_type),
        version(_version),
        numInputs(inputs),
        numOutputs(outputs) {}

  OpDomain domain;
  OpType type;
  OpVersion version;
  NumInputs numInputs;
  int numOutputs;

  bool operator==(const OperatorIdentifier& rhs) const { return key() == rhs.key(); }
  bool operator!=(const OperatorIdentifier& rhs) const { return key() != rhs.key(); }
  bool operator<(const OperatorIdentifier& rhs) const { return key() < rhs.key(); }

 private:
  std::tuple<const OpDomain&, const OpType&, OpVersion> key() const {
    return std::tuple<const OpDomain&, const OpType&, OpVersion>(domain, type, version);
  }
};

struct OperatorIdentifierLess {
  bool operator()(const OperatorIdentifier& lhs, const OperatorIdentifier& rhs) const { return lhs < rhs; }
};

std::ostream& operator<<(std::ostream& os, const OperatorIdentifier& opid);

}  // namespace popart
