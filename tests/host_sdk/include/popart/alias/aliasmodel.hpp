// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <popart/names.hpp>

namespace popart {

/// The model checks aliases after an op ran, and keeps no alias graph.
class AliasModel {
 public:
  void insertUnaryModifier0(const Op&) {}
  void insertUnaryModifier(const Op&, InIndex) {}
};

}  // namespace popart
