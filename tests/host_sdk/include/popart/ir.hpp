// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <memory>
#include <popart/graph.hpp>
#include <popart/sessionoptions.hpp>

namespace popart {

class Ir {
 public:
  enum class ExecutionMode { Inference, Training };
  Ir() : graph(std::make_unique<Graph>(*this)) {}
  const SessionOptions& getSessionOptions() const { return options; }
  SessionOptions& getSessionOptions() { return options; }
  ExecutionMode getExecutionMode() const { return mode; }
  bool isTraining() const { return mode == ExecutionMode::Training; }
  bool canTrain() const { return isTraining(); }
  Graph& getMainGraph() { return *graph; }

  ExecutionMode mode = ExecutionMode::Inference;

 private:
  SessionOptions options;
  std::unique_ptr<Graph> graph;
};

}  // namespace popart
