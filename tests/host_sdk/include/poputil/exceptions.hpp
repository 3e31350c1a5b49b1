// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

#include <stdexcept>
#include <string>

namespace poputil {

struct poplibs_error : std::runtime_error {
  explicit poplibs_error(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace poputil
