// Poplar programs of the scan: all T steps of a neuron layer in one vertex per tile. They know no neuron; the step is
// in the generated codelet, whose fields are numbered as the states, traces, kept values and parameters are.
#pragma once

#include <optional>
#include <poplar/DebugContext.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <poplar/Tensor.hpp>
#include <string>
#include <vector>

#include "mapping.hpp"

namespace snn_ipu {

/// The attributes of a scan op. Masks have bit i for the i-th state, trace or parameter.
struct ScanSpec {
  std::string codelet;
  std::string layer;  // for messages
  std::vector<float> spikeParams;
  int64_t steps = 0;
  int64_t isStatic = 0;
  int64_t states = 0;
  int64_t traces = 0;
  int64_t saves = 0;
  int64_t narrow = 0;  // saves are of x's type, else float
  int64_t checkpoint = 0;
  int64_t params = 0;
  int64_t training = 0;
  int64_t needsX = 0;
  int64_t givenStates = 0;
  int64_t needsStates = 0;  // initial states that the backward pass reads
  int64_t keptTraces = 0;
  int64_t perFeature = 0;
  int64_t learned = 0;
  int64_t forwardCycles = 0;  // of one worker, for two neurons and one step
  int64_t backwardCycles = 0;
};

struct ScanAttribute {
  const char* name;
  int64_t ScanSpec::* field;
};
constexpr ScanAttribute kScanAttributes[] = {
    {"steps", &ScanSpec::steps},
    {"static", &ScanSpec::isStatic},
    {"states", &ScanSpec::states},
    {"traces", &ScanSpec::traces},
    {"saves", &ScanSpec::saves},
    {"narrow", &ScanSpec::narrow},
    {"checkpoint", &ScanSpec::checkpoint},
    {"params", &ScanSpec::params},
    {"training", &ScanSpec::training},
    {"needs_x", &ScanSpec::needsX},
    {"given_states", &ScanSpec::givenStates},
    {"needs_states", &ScanSpec::needsStates},
    {"kept_traces", &ScanSpec::keptTraces},
    {"per_feature", &ScanSpec::perFeature},
    {"learned", &ScanSpec::learned},
    {"forward_cycles", &ScanSpec::forwardCycles},
    {"backward_cycles", &ScanSpec::backwardCycles},
};

constexpr bool bit(int64_t mask, int64_t i) { return (mask >> i) & 1; }

using MaybeTensor = std::optional<poplar::Tensor>;

/// x is [T, B, N], or [B, N] where static; states are [B, N], zero where not given; parameters [N] or of one element.
struct ScanInputs {
  poplar::Tensor x;
  std::vector<MaybeTensor> initial;
  std::vector<poplar::Tensor> params;
};
struct ScanOutputs {
  poplar::Tensor spk;
  std::vector<poplar::Tensor> finals;
  std::vector<poplar::Tensor> traces;
  std::vector<poplar::Tensor> saves;
};
ScanOutputs buildScan(poplar::Graph& graph, const ScanSpec& spec, const ScanInputs& in, poplar::program::Sequence& prog,
                      const poplar::DebugContext& debug);

/// Gradients that nothing flows into are not given. Only what the spec says is read.
struct ScanGradInputs {
  MaybeTensor gradSpk;
  std::vector<MaybeTensor> gradFinals;
  std::vector<MaybeTensor> gradTraces;
  MaybeTensor x;
  std::vector<MaybeTensor> initial;
  std::vector<poplar::Tensor> params;
  std::vector<MaybeTensor> traces;
  std::vector<poplar::Tensor> saves;
  poplar::Type type;  // of x
  int64_t batch = 0;
  int64_t features = 0;
};
struct ScanGradOutputs {
  poplar::Tensor gradX;
  std::vector<poplar::Tensor> gradInitial;
  std::vector<poplar::Tensor> gradParams;  // of the learned parameters, in order
};
ScanGradOutputs buildScanGrad(poplar::Graph& graph, const ScanSpec& spec, const ScanGradInputs& in,
                              poplar::program::Sequence& prog, const poplar::DebugContext& debug);

ScanSizes sizesOf(const ScanSpec& spec, int64_t batch, int64_t features, int64_t itemBytes);

}  // namespace snn_ipu
