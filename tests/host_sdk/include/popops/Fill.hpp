// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace popops {

template <typename FillValueType>
void fill(poplar::Graph& graph, const poplar::Tensor& t, poplar::program::Sequence& prog, FillValueType fillValue,
          const poplar::DebugContext& debugContext = {});

extern template void fill<float>(poplar::Graph&, const poplar::Tensor&, poplar::program::Sequence&, float,
                                 const poplar::DebugContext&);
extern template void fill<int>(poplar::Graph&, const poplar::Tensor&, poplar::program::Sequence&, int,
                               const poplar::DebugContext&);
extern template void fill<unsigned>(poplar::Graph&, const poplar::Tensor&, poplar::program::Sequence&, unsigned,
                                    const poplar::DebugContext&);

}  // namespace popops
