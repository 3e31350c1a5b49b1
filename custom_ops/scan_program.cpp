#include "scan_program.hpp"

#include <algorithm>
#include <popops/Reduce.hpp>
#include <stdexcept>

#include "codelets.hpp"
#include "tiles.hpp"

namespace snn_ipu {
namespace {

using poplar::Graph;
using poplar::Tensor;
using poplar::program::Execute;
using poplar::program::Sequence;

int64_t countBits(int64_t mask) {
  int64_t count = 0;
  for (; mask; mask &= mask - 1) ++count;
  return count;
}

std::string numbered(const char* name, int64_t i) { return name + std::to_string(i); }

/// One vertex per share, and how its fields are connected.
class Vertices {
 public:
  Vertices(Graph& graph, const ScanSpec& spec, const poplar::Type& type, int64_t batch, int64_t features,
           const char* name, int64_t cycles, const poplar::DebugContext& debug)
      : graph_(graph),
        debug_(debug),
        batch_(batch),
        features_(features),
        shares_(
            spread(batch * features, graph.getTarget().getNumTiles(), grainOf(graph.getTarget().getTypeSize(type)))),
        set_(graph.addComputeSet(debug)) {
    graph.addCodelets(codeletPath(spec.codelet), poplar::CodeletFileType::Auto, "-O3");
    for (const Share& share : shares_) {
      auto vertex = graph.addVertex(set_, std::string("snn::") + name + "_" + spec.codelet);
      graph.setTileMapping(vertex, share.tile);
      graph.setInitialValue(vertex["steps"], static_cast<unsigned>(spec.steps));
      graph.setInitialValue(vertex["size"], static_cast<unsigned>(share.padded));
      for (std::size_t i = 0; i < spec.spikeParams.size(); ++i) {
        graph.setInitialValue(vertex["spikeParam" + std::to_string(i)], spec.spikeParams[i]);
      }
      const int64_t rounds = (share.padded / 2 + kWorkers - 1) / kWorkers;
      graph.setPerfEstimate(vertex, static_cast<uint64_t>(kWorkers * (40 + rounds * (20 + spec.steps * cycles))));
      vertices_.push_back(vertex);
    }
  }

  const std::vector<Share>& shares() const { return shares_; }

  void constant(const std::string& field, int64_t value) {
    for (auto& vertex : vertices_) graph_.setInitialValue(vertex[field], static_cast<unsigned>(value));
  }

  /// `tensor` has `rows` frames; each vertex reads its neurons of all of them. Zeros stand in for a tensor not given.
  void read(const std::string& field, const MaybeTensor& tensor, int64_t rows, const poplar::Type& type) {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      graph_.connect(vertices_[i][field],
                     tensor ? gatherColumns(frames(*tensor, rows), shares_[i]) : zeros(type, rows, shares_[i]));
    }
  }

  void readParam(const std::string& field, const Tensor& param, bool perFeature) {
    if (perFeature) {
      // Every neuron of a feature reads that feature's value.
      read(field, param.reshape({1, asSize(features_)}).broadcast(static_cast<unsigned>(batch_), 0), 1, poplar::FLOAT);
      return;
    }
    for (auto& vertex : vertices_) graph_.connect(vertex[field], param.flatten()[0]);
  }

  /// A new tensor of `rows` frames that the vertices write.
  OwnedRows write(const std::string& field, int64_t rows, const poplar::Type& type) {
    OwnedRows owned(graph_, type, rows, shares_, {debug_, field});
    for (std::size_t i = 0; i < shares_.size(); ++i) graph_.connect(vertices_[i][field], owned.block(i));
    return owned;
  }

  Execute execute() const { return Execute(set_, debug_); }

 private:
  Tensor frames(const Tensor& tensor, int64_t rows) const {
    return tensor.reshape({asSize(rows), asSize(batch_ * features_)});
  }

  Tensor zeros(const poplar::Type& type, int64_t rows, const Share& share) {
    const std::vector<std::size_t> shape = {asSize(share.padded)};
    Tensor constant = graph_.addConstant(type, shape, 0.0f, {debug_, "zeros"});
    graph_.setTileMapping(constant, share.tile);
    return rows == 1 ? constant : constant.expand({0}).broadcast(static_cast<unsigned>(rows), 0).flatten();
  }

  Graph& graph_;
  poplar::DebugContext debug_;
  int64_t batch_;
  int64_t features_;
  std::vector<Share> shares_;
  poplar::ComputeSet set_;
  std::vector<poplar::VertexRef> vertices_;
};

std::vector<std::size_t> frameShape(int64_t batch, int64_t features) { return {asSize(batch), asSize(features)}; }
std::vector<std::size_t> sequenceShape(int64_t rows, int64_t batch, int64_t features) {
  return {asSize(rows), asSize(batch), asSize(features)};
}

void requireRoom(const Graph& graph, const ScanSpec& spec, const ScanSizes& sizes) {
  const auto& target = graph.getTarget();
  const auto capacity = static_cast<int64_t>(target.getBytesPerTile());
  const int64_t room = capacity - capacity / 10;
  const ScanBytes bytes = scanBytes(sizes, target.getNumTiles());
  const int64_t need = std::max(bytes.forward, bytes.backward);
  if (need <= room) return;
  throw std::runtime_error(
      "snn_ipu: " + spec.layer + " needs " + std::to_string(need) + " bytes on a tile, " + std::to_string(room) +
      " are left of " + std::to_string(capacity) +
      ". Use fewer steps, a smaller batch (with gradient accumulation), float16, or more replicas.");
}

}  // namespace

ScanSizes sizesOf(const ScanSpec& spec, int64_t batch, int64_t features, int64_t itemBytes) {
  return {spec.steps,
          batch,
          features,
          itemBytes,
          spec.isStatic,
          spec.states,
          spec.traces,
          spec.saves,
          spec.narrow ? itemBytes : 4,
          spec.checkpoint,
          countBits(spec.perFeature),
          countBits(spec.learned),
          spec.needsX,
          countBits(spec.keptTraces),
          spec.training};
}

ScanOutputs buildScan(Graph& graph, const ScanSpec& spec, const ScanInputs& in, Sequence& prog,
                      const poplar::DebugContext& debug) {
  const poplar::Type type = in.x.elementType();
  const auto batch = static_cast<int64_t>(in.x.dim(in.x.rank() - 2));
  const auto features = static_cast<int64_t>(in.x.dim(in.x.rank() - 1));
  const ScanSizes sizes = sizesOf(spec, batch, features, graph.getTarget().getTypeSize(type));
  requireRoom(graph, spec, sizes);

  Vertices vertices(graph, spec, type, batch, features, "ScanForward", spec.forwardCycles, debug);
  vertices.read("x", in.x, spec.isStatic ? 1 : spec.steps, type);
  for (int64_t i = 0; i < spec.states; ++i) {
    vertices.read(numbered("initial", i), in.initial[asSize(i)], 1, poplar::FLOAT);
  }
  for (int64_t i = 0; i < spec.params; ++i) {
    vertices.readParam(numbered("param", i), in.params[asSize(i)], bit(spec.perFeature, i));
  }

  ScanOutputs out;
  const auto sequence = sequenceShape(spec.steps, batch, features);
  out.spk = vertices.write("spk", spec.steps, type).rows().reshape(sequence);
  for (int64_t i = 0; i < spec.states; ++i) {
    out.finals.push_back(
        vertices.write(numbered("final", i), 1, poplar::FLOAT).rows().reshape(frameShape(batch, features)));
  }
  for (int64_t i = 0; i < spec.traces; ++i) {
    out.traces.push_back(vertices.write(numbered("trace", i), spec.steps, poplar::FLOAT).rows().reshape(sequence));
  }
  const int64_t rows = savedRows(sizes);
  for (int64_t i = 0; i < spec.saves; ++i) {
    out.saves.push_back(vertices.write(numbered("save", i), rows, spec.narrow ? type : poplar::FLOAT)
                            .rows()
                            .reshape(sequenceShape(rows, batch, features)));
  }
  if (spec.checkpoint) vertices.constant("checkpoint", spec.checkpoint);
  prog.add(vertices.execute());
  return out;
}

ScanGradOutputs buildScanGrad(Graph& graph, const ScanSpec& spec, const ScanGradInputs& in, Sequence& prog,
                              const poplar::DebugContext& debug) {
  const ScanSizes sizes = sizesOf(spec, in.batch, in.features, graph.getTarget().getTypeSize(in.type));
  requireRoom(graph, spec, sizes);
  const auto frame = frameShape(in.batch, in.features);
  const int64_t frames = spec.isStatic ? 1 : spec.steps;
  const int64_t rows = savedRows(sizes);

  Vertices vertices(graph, spec, in.type, in.batch, in.features, "ScanBackward", spec.backwardCycles, debug);
  vertices.read("gradSpk", in.gradSpk, spec.steps, in.type);
  for (int64_t i = 0; i < spec.states; ++i) {
    vertices.read(numbered("gradFinal", i), in.gradFinals[asSize(i)], 1, poplar::FLOAT);
  }
  for (int64_t i = 0; i < spec.traces; ++i) {
    vertices.read(numbered("gradTrace", i), in.gradTraces[asSize(i)], spec.steps, poplar::FLOAT);
  }
  if (spec.needsX) vertices.read("x", in.x, frames, in.type);
  for (int64_t i = 0; i < spec.states; ++i) {
    if (bit(spec.needsStates, i)) vertices.read(numbered("initial", i), in.initial[asSize(i)], 1, poplar::FLOAT);
  }
  for (int64_t i = 0; i < spec.params; ++i) {
    vertices.readParam(numbered("param", i), in.params[asSize(i)], bit(spec.perFeature, i));
  }
  for (int64_t i = 0; i < spec.traces; ++i) {
    if (bit(spec.keptTraces, i)) vertices.read(numbered("trace", i), in.traces[asSize(i)], spec.steps, poplar::FLOAT);
  }
  for (int64_t i = 0; i < spec.saves; ++i) {
    vertices.read(numbered("save", i), in.saves[asSize(i)], rows, spec.narrow ? in.type : poplar::FLOAT);
  }

  ScanGradOutputs out;
  const Tensor gradX = vertices.write("gradX", frames, in.type).rows();
  out.gradX = gradX.reshape(spec.isStatic ? frame : sequenceShape(spec.steps, in.batch, in.features));
  for (int64_t i = 0; i < spec.states; ++i) {
    out.gradInitial.push_back(vertices.write(numbered("gradInitial", i), 1, poplar::FLOAT).rows().reshape(frame));
  }
  std::vector<Tensor> partials;
  for (int64_t i = 0; i < spec.params; ++i) {
    if (bit(spec.learned, i)) {
      partials.push_back(vertices.write(numbered("partial", i), 1, poplar::FLOAT).rows().reshape(frame));
    }
  }
  if (spec.checkpoint) {
    vertices.constant("checkpoint", spec.checkpoint);
    for (int64_t i = 0; i < spec.states; ++i) {
      const OwnedRows scratch = vertices.write(numbered("scratch", i), spec.checkpoint, poplar::FLOAT);
      // Vertices read it only after writing it, so its old content need not be kept alive.
      prog.add(poplar::program::WriteUndef(scratch.all(), debug));
    }
  }
  prog.add(vertices.execute());

  // One sum per neuron came from the vertices; the rest is a reduction in an order fixed when the graph is built.
  std::size_t next = 0;
  for (int64_t i = 0; i < spec.params; ++i) {
    if (!bit(spec.learned, i)) continue;
    const Tensor& partial = partials[next++];
    const bool each = bit(spec.perFeature, i);
    const std::vector<std::size_t> dims = each ? std::vector<std::size_t>{0} : std::vector<std::size_t>{0, 1};
    const Tensor sum = popops::reduce(graph, partial, poplar::FLOAT, dims, {popops::Operation::ADD}, prog, debug);
    out.gradParams.push_back(sum.reshape(in.params[asSize(i)].shape()));
  }
  return out;
}

}  // namespace snn_ipu
