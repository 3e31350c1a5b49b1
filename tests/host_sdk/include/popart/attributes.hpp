// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <map>
#include <popart/names.hpp>
#include <string>
#include <vector>

namespace popart {

/// What a node carries; an attribute of another type than asked for reads as zero or empty, as protobuf does.
class Attributes {
 public:
  using Ints = std::vector<int64_t>;
  using Int = int64_t;
  using Floats = std::vector<float>;
  using Float = float;
  using Strings = std::vector<std::string>;
  using String = std::string;

  struct Value {
    Float f = 0;
    Int i = 0;
    String s;
    Floats floats;
    Ints ints;
    Strings strings;
    std::string described;  // type and value, to tell two attributes apart
  };

  const std::vector<std::string>& getNames() const { return names; }
  bool hasAttribute(const std::string& key) const { return att_map.count(key) > 0; }
  template <typename T>
  void setIfPresent(T& value, const std::string& key) const;
  template <typename T>
  void set(T& value, const std::string& key) const;
  template <typename T>
  T getAttribute(const std::string& key, const T& defaultValue) const;
  template <typename T>
  T getAttribute(const std::string& key) const;

  void hostSet(const std::string& key, Value value) {
    if (!att_map.count(key)) names.push_back(key);
    att_map[key] = std::move(value);
  }
  std::string hostDescription() const;

 private:
  const Value& require(const std::string& key) const;

  std::map<std::string, Value> att_map;
  std::vector<std::string> names;
};

template <>
void Attributes::setIfPresent(std::vector<int64_t>&, const std::string& key) const;
template <>
void Attributes::setIfPresent(int64_t&, const std::string& key) const;
template <>
void Attributes::setIfPresent(bool&, const std::string& key) const;
template <>
void Attributes::setIfPresent(std::string&, const std::string& key) const;
template <>
void Attributes::setIfPresent(float&, const std::string& key) const;
template <>
void Attributes::set(std::vector<int64_t>&, const std::string& key) const;
template <>
void Attributes::set(std::vector<float>&, const std::string& key) const;
template <>
void Attributes::set(std::vector<std::string>&, const std::string& key) const;
template <>
void Attributes::set(float&, const std::string& key) const;
template <>
void Attributes::set(int64_t&, const std::string& key) const;
template <>
Attributes::Ints Attributes::getAttribute(const std::string& key, const Attributes::Ints& defaultValue) const;
template <>
Attributes::Int Attributes::getAttribute(const std::string& key, const Attributes::Int& defaultValue) const;
template <>
Attributes::String Attributes::getAttribute(const std::string& key, const Attributes::String& defaultValue) const;
template <>
Attributes::Float Attributes::getAttribute(const std::string& key, const Attributes::Float& defaultValue) const;
template <>
Attributes::Ints Attributes::getAttribute(const std::string& key) const;
template <>
Attributes::Int Attributes::getAttribute(const std::string& key) const;
template <>
Attributes::String Attributes::getAttribute(const std::string& key) const;
template <>
Attributes::Strings Attributes::getAttribute(const std::string& key) const;
template <>
Attributes::Float Attributes::getAttribute(const std::string& key) const;
template <>
Attributes::Floats Attributes::getAttribute(const std::string& key) const;

}  // namespace popart
