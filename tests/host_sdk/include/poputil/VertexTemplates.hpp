// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

#include <poplar/StringRef.hpp>
#include <poplar/Type.hpp>
#include <string>
#include <type_traits>

namespace poputil {

template <typename T>
struct VertexTemplateToString {
  static std::string to_string(const T& value) { return std::to_string(value); }
};
template <>
struct VertexTemplateToString<poplar::StringRef> {
  static std::string to_string(const poplar::StringRef& value) { return value; }
};
template <>
struct VertexTemplateToString<std::string> {
  static std::string to_string(const std::string& value) { return value; }
};
template <>
struct VertexTemplateToString<const char*> {
  static std::string to_string(const char* value) { return value; }
};
template <>
struct VertexTemplateToString<char*> : VertexTemplateToString<const char*> {};
template <>
struct VertexTemplateToString<poplar::Type> {
  static std::string to_string(const poplar::Type& value) { return value.toString(); }
};
template <>
struct VertexTemplateToString<bool> {
  static std::string to_string(bool value) { return value ? "true" : "false"; }
};

/// The name a codelet template instance has on the host: templateVertex("ns::V", HALF) is "ns::V<half>".
inline std::string templateVertex(const std::string& name) { return name; }
template <typename First, typename... Rest>
std::string templateVertex(const std::string& name, First&& first, Rest&&... rest) {
  std::string text = name + "<" + VertexTemplateToString<std::decay_t<First>>::to_string(first);
  const std::string others[] = {"", VertexTemplateToString<std::decay_t<Rest>>::to_string(rest)...};
  for (std::size_t i = 1; i <= sizeof...(Rest); ++i) text += "," + others[i];
  return text + ">";
}

}  // namespace poputil
