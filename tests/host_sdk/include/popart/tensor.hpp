// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <popart/names.hpp>
#include <popart/tensorinfo.hpp>
#include <popart/vertex.hpp>
#include <string>

namespace popart {

class Tensor : public Vertex {
 public:
  Tensor(TensorId id_, Graph& graph_) : id(std::move(id_)), graph(graph_) {}
  TensorId id;
  std::string str() const final { return id; }
  TensorInfo info;
  Graph& getGraph() { return graph; }

 private:
  Graph& graph;
};

}  // namespace popart
