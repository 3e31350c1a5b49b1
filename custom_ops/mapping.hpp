// Which tile owns which neurons, and what a scan costs there. No Poplar in here: plain numbers in, plain numbers out.
#pragma once

#include <cstdint>
#include <vector>

namespace snn_ipu {

/// Mk2 IPUs have 1472 tiles of 624 KiB; a margin is left to code, exchange buffers and stacks.
constexpr int64_t kTileBytes = 624 * 1024;
constexpr int64_t kWorkers = 6;

/// Neurons [begin, end) live on one tile; `padded` rounds their number up to whole 8-byte grains.
struct Share {
  unsigned tile;
  int64_t begin;
  int64_t end;
  int64_t padded;
};

/// Neurons in a grain: 8 bytes of 16-bit data, and a float2 for float data.
constexpr int64_t grainOf(int64_t itemBytes) { return itemBytes == 2 ? 4 : 2; }

/// Spread neurons over tiles as evenly as whole grains allow, with work for all six workers of each tile used.
std::vector<Share> spread(int64_t neurons, int64_t tiles, int64_t grain);

/// The sizes of a scan; the numbers of an op's attributes and of its input shapes.
struct ScanSizes {
  int64_t steps;
  int64_t batch;
  int64_t features;
  int64_t itemBytes;  // of x and the spikes
  int64_t isStatic;   // x is one frame
  int64_t states;
  int64_t traces;      // states of which every step is an output
  int64_t saves;       // values kept for the backward pass alone
  int64_t saveBytes;   // of one kept value
  int64_t checkpoint;  // keep the states of every so many steps instead, 0 for all kept values
  int64_t params;      // parameters with one value per feature
  int64_t learned;     // parameters with a gradient
  int64_t needsX;      // the backward pass reads x
  int64_t keptTraces;  // traces that it reads
  int64_t training;
};

/// Bytes on the fullest tile while a vertex runs, and bytes held from the forward to the backward pass.
struct ScanBytes {
  int64_t forward;
  int64_t backward;
  int64_t held;
  int64_t exchanged;  // into and out of all tiles, forward and backward
};

/// Rows that the forward pass keeps of each saved value.
int64_t savedRows(const ScanSizes& sizes);
ScanBytes scanBytes(const ScanSizes& sizes, int64_t tiles);

}  // namespace snn_ipu

extern "C" {
/// As `spread`; returns the number of shares and writes (tile, begin, end, padded) of the first `room` of them.
int64_t snn_ipu_spread(int64_t neurons, int64_t tiles, int64_t grain, int64_t* shares, int64_t room);
/// As `scanBytes`; writes forward, backward, held, exchanged.
void snn_ipu_scan_bytes(const snn_ipu::ScanSizes* sizes, int64_t tiles, int64_t* bytes);
}
