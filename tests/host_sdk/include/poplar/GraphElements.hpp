// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <string>

#include "poplar/StringRef.hpp"

namespace poplar {

class FieldRef {
 public:
  FieldRef() = default;
  FieldRef(unsigned vertex, std::string field) : vertex_(vertex), field_(std::move(field)) {}
  unsigned hostVertex() const { return vertex_; }
  const std::string& hostField() const { return field_; }

 private:
  unsigned vertex_ = ~0u;
  std::string field_;
};

class VertexRef {
 public:
  VertexRef() = default;
  explicit VertexRef(unsigned id) : id_(id) {}
  FieldRef operator[](StringRef field) const { return FieldRef(id_, field); }
  unsigned getId() const { return id_; }

 private:
  unsigned id_ = ~0u;
};

class ComputeSet {
 public:
  ComputeSet() = default;
  explicit ComputeSet(unsigned id) : id_(id) {}
  unsigned getId() const { return id_; }

 private:
  unsigned id_ = ~0u;
};

}  // namespace poplar
