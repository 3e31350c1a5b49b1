// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#include <algorithm>
#include <functional>
#include <numeric>
#include <poputil/TileMapping.hpp>
#include <poputil/Util.hpp>
#include <poputil/exceptions.hpp>

namespace poputil {
namespace {

std::size_t ceilDiv(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

std::size_t sizeOf(const poplar::Interval& interval) { return interval.size(); }
std::size_t sizeOf(const std::vector<poplar::Interval>& intervals) {
  return std::accumulate(intervals.begin(), intervals.end(), std::size_t(0),
                         [](std::size_t n, const poplar::Interval& i) { return n + i.size(); });
}

poplar::Interval part(const poplar::Interval& interval, std::size_t offset, std::size_t n) {
  return {interval.begin() + offset, interval.begin() + offset + n};
}
std::vector<poplar::Interval> part(const std::vector<poplar::Interval>& intervals, std::size_t offset, std::size_t n) {
  std::vector<poplar::Interval> out;
  for (const auto& interval : intervals) {
    if (n == 0) break;
    if (offset >= interval.size()) {
      offset -= interval.size();
      continue;
    }
    const std::size_t take = std::min(n, interval.size() - offset);
    out.push_back(part(interval, offset, take));
    n -= take;
    offset = 0;
  }
  return out;
}

template <class Item>
std::vector<std::vector<Item>> split(const std::vector<Item>& items, std::size_t grain, std::size_t max_partitions,
                                     std::size_t min_elements, std::size_t max_elements, std::size_t max_per_region) {
  std::size_t total = 0;
  for (const auto& item : items) total += sizeOf(item);
  if (total == 0) return {};
  const std::size_t grains = ceilDiv(total, grain);
  std::size_t per_partition = std::min(ceilDiv(grains, max_partitions), max_elements / grain);
  if (min_elements != 0) {
    const std::size_t most = std::max<std::size_t>(1, grains / ceilDiv(min_elements, grain));
    per_partition = std::max(per_partition, ceilDiv(grains, most));
  }
  if (per_partition == 0) throw poplibs_error("splitRegions: a partition cannot hold one grain");
  const std::size_t partitions = ceilDiv(grains, per_partition);
  const std::size_t region_limit = max_per_region / grain * grain;
  std::vector<std::vector<Item>> out(partitions);
  std::size_t item = 0;
  std::size_t offset = 0;
  for (std::size_t p = 0; p < partitions; ++p) {
    const std::size_t begin = p * grains / partitions * grain;
    const std::size_t end = std::min(total, (p + 1) * grains / partitions * grain);
    for (std::size_t left = end - begin; left > 0;) {
      if (offset == sizeOf(items[item])) {
        ++item;
        offset = 0;
        continue;
      }
      const std::size_t n = std::min({left, region_limit, sizeOf(items[item]) - offset});
      out[p].push_back(part(items[item], offset, n));
      offset += n;
      left -= n;
    }
  }
  return out;
}

std::size_t elementsOf(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t(1), std::multiplies<std::size_t>());
}

}  // namespace

void mergeAdjacentRegions(std::vector<poplar::Interval>& regions) {
  std::sort(regions.begin(), regions.end());
  std::vector<poplar::Interval> out;
  for (const auto& region : regions) {
    if (region.size() == 0) continue;
    if (!out.empty() && out.back().end() == region.begin()) {
      out.back() = poplar::Interval(out.back().begin(), region.end());
    } else {
      out.push_back(region);
    }
  }
  regions.swap(out);
}

void mergeAdjacentRegions(std::vector<std::vector<poplar::Interval>>& mapping) {
  for (auto& regions : mapping) mergeAdjacentRegions(regions);
}

std::vector<poplar::Interval> flattenIntervals(const std::vector<std::vector<poplar::Interval>>& intervals) {
  std::vector<poplar::Interval> out;
  for (const auto& group : intervals) out.insert(out.end(), group.begin(), group.end());
  return out;
}

std::vector<std::vector<poplar::Interval>> splitRegions(const std::vector<poplar::Interval>& regions,
                                                        unsigned grainSize, unsigned maxPartitions,
                                                        unsigned minElementsPerPartition,
                                                        unsigned maxElementsPerPartition,
                                                        unsigned maxElementsPerRegion) {
  return split(regions, grainSize, maxPartitions, minElementsPerPartition, maxElementsPerPartition,
               maxElementsPerRegion);
}

std::vector<std::vector<poplar::Interval>> splitRegionsBetweenWorkers(
    const poplar::Target& target, const std::vector<poplar::Interval>& regions, unsigned grainSize,
    unsigned minElementsPerPartition, unsigned maxElementsPerPartition, unsigned maxElementsPerRegion) {
  return split(regions, grainSize, target.getNumWorkerContexts(), minElementsPerPartition, maxElementsPerPartition,
               maxElementsPerRegion);
}

std::vector<std::vector<std::vector<poplar::Interval>>> splitRegions(
    const std::vector<std::vector<poplar::Interval>>& regions, unsigned grainSize, unsigned maxPartitions,
    unsigned minElementsPerPartition, unsigned maxElementsPerPartition, unsigned maxElementsPerRegion) {
  return split(regions, grainSize, maxPartitions, minElementsPerPartition, maxElementsPerPartition,
               maxElementsPerRegion);
}

std::vector<std::vector<std::vector<poplar::Interval>>> splitRegionsBetweenWorkers(
    const poplar::Target& target, const std::vector<std::vector<poplar::Interval>>& regions, unsigned grainSize,
    unsigned minElementsPerPartition, unsigned maxElementsPerPartition, unsigned maxElementsPerRegion) {
  return split(regions, grainSize, target.getNumWorkerContexts(), minElementsPerPartition, maxElementsPerPartition,
               maxElementsPerRegion);
}

std::size_t intervalSequenceNumElements(const std::vector<std::vector<poplar::Interval>>& sequence) {
  std::size_t n = 0;
  for (const auto& group : sequence) n += sizeOf(group);
  return n;
}

poplar::Tensor duplicate(poplar::Graph& graph, const poplar::Tensor& in, poplar::program::Sequence& p,
                         const poplar::DebugContext& debugContext, poplar::TensorCloneMethod method) {
  poplar::Tensor copy = graph.clone(in, debugContext, method);
  p.add(poplar::program::Copy(in, copy, false, debugContext));
  return copy;
}

std::vector<std::vector<poplar::Interval>> calcLinearTileMapping(const poplar::Target& target,
                                                                 std::vector<std::size_t> shape,
                                                                 unsigned minElementsPerTile, unsigned grainSize,
                                                                 unsigned offset, bool ascendingOrder) {
  const std::size_t tiles = target.getNumTiles();
  const auto parts = splitRegions({poplar::Interval(0, elementsOf(shape))}, grainSize, static_cast<unsigned>(tiles),
                                  minElementsPerTile);
  std::vector<std::vector<poplar::Interval>> mapping(tiles);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t step = (i + offset) % tiles;
    mapping[ascendingOrder ? step : tiles - 1 - step] = parts[i];
  }
  return mapping;
}

std::vector<std::vector<poplar::Interval>> calcLinearTileMapping(const poplar::Graph& graph,
                                                                 std::vector<std::size_t> shape,
                                                                 unsigned minElementsPerTile, unsigned grainSize,
                                                                 unsigned offset, bool ascendingOrder) {
  return calcLinearTileMapping(graph.getTarget(), std::move(shape), minElementsPerTile, grainSize, offset,
                               ascendingOrder);
}

std::vector<std::vector<poplar::Interval>> calcLinearTileMapping(const poplar::Graph& graph, const poplar::Tensor& t,
                                                                 unsigned offset, bool ascendingOrder) {
  const auto& target = graph.getTarget();
  const unsigned bytes = target.getTypeSize(t.elementType());
  return calcLinearTileMapping(target, t.shape(), (128 + bytes - 1) / bytes, target.getVectorWidth(t.elementType()),
                               offset, ascendingOrder);
}

void mapTensorLinearlyWithOffset(poplar::Graph& graph, const poplar::Tensor& t, unsigned minElementsPerTile,
                                 unsigned grainSize, unsigned offset, bool ascendingOrder) {
  graph.setTileMapping(t,
                       calcLinearTileMapping(graph, t.shape(), minElementsPerTile, grainSize, offset, ascendingOrder));
}

void mapTensorLinearlyWithOffset(poplar::Graph& graph, const poplar::Tensor& t, unsigned offset, bool ascendingOrder) {
  graph.setTileMapping(t, calcLinearTileMapping(graph, t, offset, ascendingOrder));
}

void mapTensorLinearly(poplar::Graph& graph, const poplar::Tensor& t) { mapTensorLinearlyWithOffset(graph, t, 0); }

void mapTensorLinearly(poplar::Graph& graph, const poplar::Tensor& t, unsigned minElementsPerTile, unsigned grainSize) {
  mapTensorLinearlyWithOffset(graph, t, minElementsPerTile, grainSize, 0);
}

}  // namespace poputil
