// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <popart/basicoptionals.hpp>
#include <popart/names.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace popart {

class Scope;

class OpSerialiserBase {
 public:
  virtual ~OpSerialiserBase() {}

  void appendAttribute(const std::string& key, float value);
  void appendAttribute(const std::string& key, double value);
  void appendAttribute(const std::string& key, int value);
  void appendAttribute(const std::string& key, int64_t value);
  void appendAttribute(const std::string& key, uint32_t value);
  void appendAttribute(const std::string& key, uint64_t value);
  void appendAttribute(const std::string& key, const std::string& value);
  void appendAttribute(const std::string& key, const std::vector<float>& value);
  void appendAttribute(const std::string& key, const std::vector<double>& value);
  void appendAttribute(const std::string& key, const std::vector<int64_t>& value);
  void appendAttribute(const std::string& key, const Scope& value);
  void appendAttribute(const std::string& key, bool value);
  template <typename T, uint32_t V>
  void appendAttribute(const std::string& key, const BasicOptional<T, V>& value) {
    std::ostringstream oss;
    oss << value;
    appendStrAttr(key, oss.str());
  }
  template <typename T>
  void appendAttribute(const std::string& key, const T& value) {
    std::ostringstream ss;
    ss << value;
    appendStrAttr(key, ss.str());
  }

 private:
  virtual void appendStrAttr(const std::string& key, const std::string& value) = 0;
};

/// Ops with equal ids are one op to the outliner.
class OpEquivIdCreator : public OpSerialiserBase {
 public:
  explicit OpEquivIdCreator(const Op* op);
  std::string str() const { return ss.str(); }

 private:
  void appendStrAttr(const std::string& key, const std::string& value) final;
  std::stringstream ss;
};

}  // namespace popart
