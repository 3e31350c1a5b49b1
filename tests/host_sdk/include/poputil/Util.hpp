// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

#include <climits>
#include <poplar/Device.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Interval.hpp>
#include <poplar/Program.hpp>
#include <poplar/Target.hpp>
#include <poplar/Tensor.hpp>
#include <vector>

namespace poputil {

void mergeAdjacentRegions(std::vector<poplar::Interval>& regions);
void mergeAdjacentRegions(std::vector<std::vector<poplar::Interval>>& mapping);
std::vector<poplar::Interval> flattenIntervals(const std::vector<std::vector<poplar::Interval>>& intervals);

/// Split regions into at most maxPartitions parts, each a whole number of grains except the last.
std::vector<std::vector<poplar::Interval>> splitRegions(const std::vector<poplar::Interval>& regions,
                                                        unsigned grainSize, unsigned maxPartitions,
                                                        unsigned minElementsPerPartition = 0,
                                                        unsigned maxElementsPerPartition = UINT_MAX,
                                                        unsigned maxElementsPerRegion = UINT_MAX);
std::vector<std::vector<poplar::Interval>> splitRegionsBetweenWorkers(const poplar::Target& target,
                                                                      const std::vector<poplar::Interval>& regions,
                                                                      unsigned grainSize,
                                                                      unsigned minElementsPerPartition = 0,
                                                                      unsigned maxElementsPerPartition = UINT_MAX,
                                                                      unsigned maxElementsPerRegion = UINT_MAX);
std::vector<std::vector<std::vector<poplar::Interval>>> splitRegions(
    const std::vector<std::vector<poplar::Interval>>& regions, unsigned grainSize, unsigned maxPartitions,
    unsigned minElementsPerPartition = 0, unsigned maxElementsPerPartition = UINT_MAX,
    unsigned maxElementsPerRegion = UINT_MAX);
std::vector<std::vector<std::vector<poplar::Interval>>> splitRegionsBetweenWorkers(
    const poplar::Target& target, const std::vector<std::vector<poplar::Interval>>& regions, unsigned grainSize,
    unsigned minElementsPerPartition = 0, unsigned maxElementsPerPartition = UINT_MAX,
    unsigned maxElementsPerRegion = UINT_MAX);
std::size_t intervalSequenceNumElements(const std::vector<std::vector<poplar::Interval>>& sequence);

poplar::Tensor duplicate(poplar::Graph& graph, const poplar::Tensor& in, poplar::program::Sequence& p,
                         const poplar::DebugContext& debugContext = {},
                         poplar::TensorCloneMethod method = poplar::TensorCloneMethod::PRESERVE_ORDER_UNLESS_ALIASES);

}  // namespace poputil
