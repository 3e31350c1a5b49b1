// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

namespace poplar {

enum class VectorLayout {
  NOT_APPLICABLE,
  SPAN,
  SHORT_SPAN,
  ONE_PTR,
  COMPACT_PTR,
  SCALED_PTR32,
  SCALED_PTR64,
  SCALED_PTR128
};

constexpr bool hostHasSize(VectorLayout layout) {
  return layout == VectorLayout::SPAN || layout == VectorLayout::SHORT_SPAN;
}

}  // namespace poplar
