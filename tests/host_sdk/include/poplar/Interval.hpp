// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <cstddef>
#include <ostream>

namespace poplar {

template <class T>
class GenericInterval {
 public:
  GenericInterval() = default;
  GenericInterval(const T& begin, const T& end) : begin_(begin), end_(end) {}
  const T& begin() const { return begin_; }
  const T& end() const { return end_; }
  T size() const { return end_ - begin_; }
  bool operator==(const GenericInterval& other) const { return begin_ == other.begin_ && end_ == other.end_; }
  bool operator!=(const GenericInterval& other) const { return !(*this == other); }
  bool operator<(const GenericInterval& other) const {
    return begin_ < other.begin_ || (begin_ == other.begin_ && end_ < other.end_);
  }

 private:
  T begin_{};
  T end_{};
};

using Interval = GenericInterval<std::size_t>;

inline std::ostream& operator<<(std::ostream& out, const Interval& interval) {
  return out << '[' << interval.begin() << ',' << interval.end() << ')';
}

}  // namespace poplar
