// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <string>

namespace popart {

class DebugInfo {
 public:
  std::uint64_t getId() const { return 0; }
  std::string getPathName() const { return ""; }
};

using OpDebugInfo = DebugInfo;

}  // namespace popart
