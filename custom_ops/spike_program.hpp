// Poplar programs of the threshold-shifted step: spk = x > threshold, with a surrogate as its gradient.
#pragma once

#include <poplar/DebugContext.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <poplar/Tensor.hpp>
#include <string>
#include <vector>

namespace snn_ipu {

/// The attributes of the op.
struct SpikeSpec {
  std::string codelet;
  float threshold = 0;
  std::vector<float> spikeParams;
};

/// Spikes in a new tensor with the shape, the type and the tiles of x.
poplar::Tensor buildSpike(poplar::Graph& graph, const SpikeSpec& spec, const poplar::Tensor& x,
                          poplar::program::Sequence& prog, const poplar::DebugContext& debug);

/// The gradient of x, as above.
poplar::Tensor buildSpikeGrad(poplar::Graph& graph, const SpikeSpec& spec, const poplar::Tensor& gradSpk,
                              const poplar::Tensor& x, poplar::program::Sequence& prog,
                              const poplar::DebugContext& debug);

}  // namespace snn_ipu
