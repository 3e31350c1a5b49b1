// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <popart/logging.hpp>
#include <stdexcept>
#include <string>

namespace popart {

class error : public std::runtime_error {
 public:
  template <typename... Args>
  explicit error(const char* pattern, const Args&... args) : std::runtime_error(logging::format(pattern, args...)) {}
  template <typename... Args>
  explicit error(const std::string& pattern, const Args&... args)
      : std::runtime_error(logging::format(pattern, args...)) {}
};

class internal_error : public error {
 public:
  using error::error;
};

class runtime_error : public error {
 public:
  using error::error;
};

}  // namespace popart
