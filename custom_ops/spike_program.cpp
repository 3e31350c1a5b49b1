#include "spike_program.hpp"

#include <algorithm>

#include "codelets.hpp"
#include "tiles.hpp"

namespace snn_ipu {
namespace {

using poplar::Graph;
using poplar::Tensor;
using poplar::program::Sequence;

struct Field {
  const char* name;
  Tensor tensor;
};

/// One vertex per tile of the first input, over the elements that it has there.
Tensor build(Graph& graph, const SpikeSpec& spec, const char* name, const std::vector<Field>& inputs,
             const char* output, Sequence& prog, const poplar::DebugContext& debug) {
  graph.addCodelets(codeletPath(spec.codelet), poplar::CodeletFileType::Auto, "-O3");
  const Tensor x = inputs.front().tensor.flatten();
  const poplar::Type type = x.elementType();
  const int64_t grain = grainOf(graph.getTarget().getTypeSize(type));
  poplar::ComputeSet set = graph.addComputeSet(debug);
  const auto mapping = graph.getTileMapping(x);

  // Where each part of the flat result begins, so that the parts can be put in order again.
  std::vector<std::pair<std::size_t, Tensor>> parts;
  for (unsigned tile = 0; tile < mapping.size(); ++tile) {
    if (mapping[tile].empty()) continue;
    const auto mine = [&](const Tensor& t) { return poplar::concat(t.flatten().slices(mapping[tile])); };
    const auto count = static_cast<int64_t>(mine(x).numElements());
    const int64_t padded = (count + grain - 1) / grain * grain;
    const auto rows = [&](const Tensor& t) { return padColumns(mine(t).reshape({1, asSize(count)}), padded); };

    auto vertex = graph.addVertex(set, std::string("snn::") + name + "_" + spec.codelet);
    graph.setTileMapping(vertex, tile);
    for (const Field& field : inputs) graph.connect(vertex[field.name], rows(field.tensor));
    const std::vector<std::size_t> shape = {asSize(padded)};
    const Tensor out = graph.addVariable(type, shape, {debug, output});
    graph.setTileMapping(out, tile);
    graph.connect(vertex[output], out);
    graph.setInitialValue(vertex["threshold"], spec.threshold);
    for (std::size_t i = 0; i < spec.spikeParams.size(); ++i) {
      graph.setInitialValue(vertex["spikeParam" + std::to_string(i)], spec.spikeParams[i]);
    }
    graph.setInitialValue(vertex["size"], static_cast<unsigned>(padded));
    graph.setPerfEstimate(vertex, static_cast<uint64_t>(kWorkers * (30 + 16 * (padded / 2 / kWorkers + 1))));

    std::size_t at = 0;
    for (const auto& interval : mapping[tile]) {
      parts.emplace_back(interval.begin(), out.slice(at, at + interval.size()));
      at += interval.size();
    }
  }
  prog.add(poplar::program::Execute(set, debug));

  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tensor> ordered;
  for (const auto& part : parts) ordered.push_back(part.second);
  return poplar::concat(ordered).reshape(inputs.front().tensor.shape());
}

}  // namespace

Tensor buildSpike(Graph& graph, const SpikeSpec& spec, const Tensor& x, Sequence& prog,
                  const poplar::DebugContext& debug) {
  return build(graph, spec, "Spike", {{"x", x}}, "spk", prog, debug);
}

Tensor buildSpikeGrad(Graph& graph, const SpikeSpec& spec, const Tensor& gradSpk, const Tensor& x, Sequence& prog,
                      const poplar::DebugContext& debug) {
  return build(graph, spec, "SpikeGrad", {{"x", x}, {"gradSpk", gradSpk}}, "gradX", prog, debug);
}

}  // namespace snn_ipu
