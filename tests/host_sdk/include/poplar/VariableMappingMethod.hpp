// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

namespace poplar {

enum class VariableMappingMethod { NONE, LINEAR };

}  // namespace poplar
