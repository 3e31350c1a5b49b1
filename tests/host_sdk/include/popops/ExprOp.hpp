// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

namespace popops {
namespace expr {

enum class TernaryOpType { CLAMP, SELECT };

enum class BinaryOpType {
  ADD,
  DIVIDE,
  EQUAL,
  GREATER_THAN_EQUAL,
  GREATER_THAN,
  LESS_THAN_EQUAL,
  LOGICAL_AND,
  LOGICAL_OR,
  LESS_THAN,
  MAXIMUM,
  MINIMUM,
  MULTIPLY,
  NOT_EQUAL,
  POWER,
  SUBTRACT
};

enum class UnaryOpType {
  ABSOLUTE,
  CEIL,
  COS,
  ERF,
  EXPONENT,
  FLOOR,
  INVERSE,
  LOGARITHM,
  LOGARITHM_ONE_PLUS,
  LOGICAL_NOT,
  NEGATE,
  RELU,
  SIGNUM,
  SIN,
  TANH,
  SQRT,
  SQUARE,
  SIGMOID,
  RSQRT
};

}  // namespace expr
}  // namespace popops
