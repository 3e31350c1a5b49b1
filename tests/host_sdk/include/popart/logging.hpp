// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace popart {
namespace logging {

class FormatError : public std::runtime_error {
 public:
  explicit FormatError(const std::string& what) : std::runtime_error(what) {}
};

std::string substitute(const std::string& pattern, const std::vector<std::string>& args);

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
template <class T>
std::string text(const std::vector<T>& values) {
  std::string out = "[";
  for (const auto& value : values) out += (out.size() > 1 ? " " : "") + text(value);
  return out + "]";
}

/// fmt's `{}` place holders.
template <typename... Args>
std::string format(const std::string& pattern, const Args&... args) {
  return substitute(pattern, {text(args)...});
}

template <typename... Args>
void warn(const std::string& pattern, const Args&... args) {
  std::cerr << "[popart host model] warning: " << format(pattern, args...) << '\n';
}
template <typename... Args>
void err(const std::string& pattern, const Args&... args) {
  std::cerr << "[popart host model] error: " << format(pattern, args...) << '\n';
}
template <typename... Args>
void info(const std::string&, const Args&...) {}
template <typename... Args>
void debug(const std::string&, const Args&...) {}
template <typename... Args>
void trace(const std::string&, const Args&...) {}

}  // namespace logging
}  // namespace popart
