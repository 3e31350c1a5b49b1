// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

namespace poplar {

class Type {
 public:
  Type() = default;
  // The name is the one that appears in vertex types, e.g. "unsigned int".
  Type(const char* name, unsigned size, bool floating) : name_(name), size_(size), floating_(floating) {}

  std::string toString() const { return name_; }
  bool operator==(const Type& other) const { return std::string(name_) == other.name_; }
  bool operator!=(const Type& other) const { return !(*this == other); }
  bool operator<(const Type& other) const { return std::string(name_) < other.name_; }

  // Only for the host model: the real class keeps sizes in the Target.
  unsigned hostSize() const { return size_; }
  bool hostIsFloating() const { return floating_; }

 private:
  const char* name_ = "none";
  unsigned size_ = 0;
  bool floating_ = false;
};

inline std::ostream& operator<<(std::ostream& out, const Type& type) { return out << type.toString(); }

// Inline, so that op libraries may use them in their own static initialisers.
inline const Type BOOL("bool", 1, false);
inline const Type CHAR("char", 1, false);
inline const Type UNSIGNED_CHAR("unsigned char", 1, false);
inline const Type SIGNED_CHAR("signed char", 1, false);
inline const Type UNSIGNED_SHORT("unsigned short", 2, false);
inline const Type SHORT("short", 2, false);
inline const Type UNSIGNED_INT("unsigned int", 4, false);
inline const Type INT("int", 4, false);
inline const Type UNSIGNED_LONGLONG("unsigned long long", 8, false);
inline const Type LONGLONG("long long", 8, false);
inline const Type HALF("half", 2, true);
inline const Type FLOAT("float", 4, true);

template <typename T>
struct equivalent_device_type;
template <>
struct equivalent_device_type<bool> {
  const Type& value = BOOL;
};
template <>
struct equivalent_device_type<float> {
  const Type& value = FLOAT;
};
template <>
struct equivalent_device_type<int> {
  const Type& value = INT;
};
template <>
struct equivalent_device_type<unsigned> {
  const Type& value = UNSIGNED_INT;
};
template <>
struct equivalent_device_type<unsigned char> {
  const Type& value = UNSIGNED_CHAR;
};
template <>
struct equivalent_device_type<short> {
  const Type& value = SHORT;
};
template <>
struct equivalent_device_type<unsigned short> {
  const Type& value = UNSIGNED_SHORT;
};

}  // namespace poplar
