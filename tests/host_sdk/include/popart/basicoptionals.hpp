// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <ostream>
#include <popart/names.hpp>

namespace popart {

template <typename T, uint32_t V = 0>
class BasicOptional {
 public:
  BasicOptional() noexcept : isSet(false) {}
  BasicOptional(T t) : isSet(true), value(t) {}
  const T& operator*() const& { return value; }
  T& operator*() & { return value; }
  explicit operator bool() const { return isSet; }
  void reset() noexcept { isSet = false; }

 protected:
  bool isSet;
  T value{};
};

using OptionalVGraphId = BasicOptional<VGraphId, 2>;

template <typename T, uint32_t V>
std::ostream& operator<<(std::ostream& out, const BasicOptional<T, V>& optional) {
  if (optional) return out << *optional;
  return out << "none";
}

}  // namespace popart
