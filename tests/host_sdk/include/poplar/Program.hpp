// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "poplar/DebugContext.hpp"
#include "poplar/GraphElements.hpp"
#include "poplar/Tensor.hpp"

namespace poplar {
namespace program {

class Program {
 public:
  /// One step, or a list of them.
  struct Node {
    enum class Kind { Nothing, Sequence, Execute, Copy, Repeat, WriteUndef, Library } kind = Kind::Nothing;
    std::vector<Program> body;
    ComputeSet compute_set;
    Tensor source;
    Tensor destination;
    unsigned count = 1;
    std::string name;
    std::function<void()> library;  // a PopLibs function, computed by the model itself
  };

  Program() : node_(std::make_shared<Node>()) {}
  bool isEmpty() const { return node_->kind == Node::Kind::Nothing; }
  Node& hostNode() const { return *node_; }

 protected:
  explicit Program(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  static std::shared_ptr<Node> make(Node::Kind kind, const DebugContext& debugContext);

  std::shared_ptr<Node> node_;
};

class Sequence : public Program {
 public:
  Sequence(const DebugContext& debugContext = {}) : Program(make(Node::Kind::Sequence, debugContext)) {}
  Sequence(std::initializer_list<Program> programs, const DebugContext& debugContext = {}) : Sequence(debugContext) {
    for (const auto& program : programs) add(program);
  }
  void add(const Program& program) { node_->body.push_back(program); }
};

class Execute : public Program {
 public:
  Execute(ComputeSet cs, const DebugContext& debugContext = {}) : Program(make(Node::Kind::Execute, debugContext)) {
    node_->compute_set = cs;
  }
};

class Copy : public Program {
 public:
  Copy(Tensor src, Tensor dst, bool dontOutline = false, const DebugContext& debugContext = {});
};

class Repeat : public Program {
 public:
  Repeat(unsigned count, const Program& program, const DebugContext& debugContext = {})
      : Program(make(Node::Kind::Repeat, debugContext)) {
    node_->count = count;
    node_->body.push_back(program);
  }
};

/// The host model's own step, for the PopLibs functions that it offers.
class HostStep : public Program {
 public:
  HostStep(Tensor source, Tensor destination, std::function<void()> library, const DebugContext& debugContext)
      : Program(make(Node::Kind::Library, debugContext)) {
    node_->source = std::move(source);
    node_->destination = std::move(destination);
    node_->library = std::move(library);
  }
};

class WriteUndef : public Program {
 public:
  WriteUndef(Tensor t, const DebugContext& debugContext = {}) : Program(make(Node::Kind::WriteUndef, debugContext)) {
    node_->destination = std::move(t);
  }
};

}  // namespace program
}  // namespace poplar
