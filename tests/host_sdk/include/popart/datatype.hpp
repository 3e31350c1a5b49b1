// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <ostream>

namespace popart {

enum class DataType {
  UINT8 = 0,
  INT8,
  FLOAT8_143,
  FLOAT8_152,
  UINT16,
  INT16,
  INT32,
  INT64,
  UINT32,
  UINT64,
  BOOL,
  FLOAT,
  FLOAT16,
  BFLOAT16,
  DOUBLE,
  COMPLEX64,
  COMPLEX128,
  STRING,
  UNDEFINED,
};

std::ostream& operator<<(std::ostream& stream, const DataType& type);

}  // namespace popart
