// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <popart/names.hpp>
#include <vector>

namespace popart {
namespace view {

enum class AccessType { None = 0, Read = 1, Write = 2, ReadWrite = 3, N = 4 };

class Region {
 public:
  Region(const std::vector<int64_t>& lower_, const std::vector<int64_t>& upper_) : lower(lower_), upper(upper_) {}
  Region(const std::vector<int64_t>& lower_, const std::vector<int64_t>& upper_, const AccessType)
      : Region(lower_, upper_) {}
  int64_t rank() const { return static_cast<int64_t>(lower.size()); }
  int64_t nelms() const;
  bool isEmpty() const { return nelms() == 0; }
  static Region getEmpty(int64_t r);
  static Region getFull(const Shape& s, AccessType accessType = AccessType::ReadWrite);
  bool operator==(const Region& other) const { return lower == other.lower && upper == other.upper; }
  const std::vector<int64_t>& getLower() const { return lower; }
  const std::vector<int64_t>& getUpper() const { return upper; }

 private:
  std::vector<int64_t> lower;
  std::vector<int64_t> upper;
};

}  // namespace view
}  // namespace popart
