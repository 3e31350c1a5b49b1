// What both program builders need: rows of data, padded to whole grains, on the tile that works on them.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/Tensor.hpp>
#include <string>
#include <vector>

#include "mapping.hpp"

namespace snn_ipu {

inline std::size_t asSize(int64_t n) { return static_cast<std::size_t>(n); }

/// Columns [begin, end) of rows [rows, M], flattened, the last one repeated up to `padded` of them.
inline poplar::Tensor padColumns(const poplar::Tensor& columns, int64_t padded) {
  const std::size_t width = columns.dim(1);
  if (width == asSize(padded)) return columns.flatten();
  // A repeated neuron computes what a neuron computes: no padding can overflow or divide by zero on its own.
  const auto last = columns.slice(width - 1, width, 1);
  const auto missing = static_cast<unsigned>(asSize(padded) - width);
  return poplar::concat(columns, last.broadcast(missing, 1), 1).flatten();
}

inline poplar::Tensor gatherColumns(const poplar::Tensor& rows, const Share& share) {
  return padColumns(rows.slice(asSize(share.begin), asSize(share.end), 1), share.padded);
}

/// A new tensor [rows, M] of one contiguous block per tile.
class OwnedRows {
 public:
  OwnedRows(poplar::Graph& graph, const poplar::Type& type, int64_t rows, const std::vector<Share>& shares,
            const poplar::DebugContext& debug) {
    for (const Share& share : shares) {
      const std::vector<std::size_t> shape = {asSize(rows), asSize(share.padded)};
      blocks_.push_back(graph.addVariable(type, shape, debug));
      graph.setTileMapping(blocks_.back(), share.tile);
      columns_.push_back(blocks_.back().slice(0, asSize(share.end - share.begin), 1));
    }
  }

  poplar::Tensor block(std::size_t i) const { return blocks_[i].flatten(); }
  poplar::Tensor all() const {
    std::vector<poplar::Tensor> flat;
    for (const auto& block : blocks_) flat.push_back(block.flatten());
    return poplar::concat(flat);
  }
  poplar::Tensor rows() const { return poplar::concat(columns_, 1); }

 private:
  std::vector<poplar::Tensor> blocks_;
  std::vector<poplar::Tensor> columns_;
};

}  // namespace snn_ipu
