#include "mapping.hpp"

#include <algorithm>

namespace snn_ipu {

std::vector<Share> spread(int64_t neurons, int64_t tiles, int64_t grain) {
  std::vector<Share> shares;
  const int64_t grains = (neurons + grain - 1) / grain;
  // A worker takes two neurons at a time.
  const int64_t least = (2 * kWorkers + grain - 1) / grain;
  const int64_t used = std::min(tiles, std::max<int64_t>(1, grains / least));
  int64_t begin = 0;
  for (int64_t i = 0; i < used && begin < neurons; ++i) {
    const int64_t count = (grains / used + (i < grains % used)) * grain;
    shares.push_back({static_cast<unsigned>(i), begin, std::min(begin + count, neurons), count});
    begin += count;
  }
  return shares;
}

int64_t savedRows(const ScanSizes& s) { return s.checkpoint ? (s.steps + s.checkpoint - 1) / s.checkpoint : s.steps; }

ScanBytes scanBytes(const ScanSizes& s, int64_t tiles) {
  constexpr int64_t kFloat = 4;
  const std::vector<Share> shares = spread(s.batch * s.features, tiles, grainOf(s.itemBytes));
  const int64_t neurons = shares.empty() ? 0 : shares.front().padded;
  const int64_t x = (s.isStatic ? 1 : s.steps) * s.itemBytes;
  const int64_t spikes = s.steps * s.itemBytes;
  const int64_t traces = s.traces * s.steps * kFloat;
  const int64_t saves = s.training ? s.saves * savedRows(s) * s.saveBytes : 0;
  const int64_t kept = saves + s.keptTraces * s.steps * kFloat + (s.needsX ? x : 0);
  const int64_t ends = 2 * s.states * kFloat;
  const int64_t params = s.params * kFloat;
  const int64_t scratch = s.checkpoint * s.states * kFloat;

  // What other ops made lies where they put it, and once more where a vertex reads it.
  ScanBytes bytes{};
  bytes.forward = neurons * (2 * x + spikes + traces + saves + ends + params);
  bytes.exchanged = s.batch * s.features * (x + spikes);
  if (s.training) {
    bytes.held = neurons * kept;
    bytes.backward = neurons * (kept + (s.needsX ? x : 0) + 2 * spikes + 2 * traces + x + ends + s.states * kFloat +
                                params + s.learned * kFloat + scratch);
    bytes.exchanged += s.batch * s.features * (spikes + x + (s.needsX ? x : 0));
  }
  return bytes;
}

}  // namespace snn_ipu

int64_t snn_ipu_spread(int64_t neurons, int64_t tiles, int64_t grain, int64_t* out, int64_t room) {
  const auto shares = snn_ipu::spread(neurons, tiles, grain);
  const auto count = static_cast<int64_t>(shares.size());
  for (int64_t i = 0; i < std::min(count, room); ++i) {
    const auto& share = shares[static_cast<std::size_t>(i)];
    const int64_t row[] = {share.tile, share.begin, share.end, share.padded};
    std::copy(row, row + 4, out + 4 * i);
  }
  return count;
}

void snn_ipu_scan_bytes(const snn_ipu::ScanSizes* sizes, int64_t tiles, int64_t* out) {
  const snn_ipu::ScanBytes bytes = snn_ipu::scanBytes(*sizes, tiles);
  const int64_t row[] = {bytes.forward, bytes.backward, bytes.held, bytes.exchanged};
  std::copy(row, row + 4, out);
}
