// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <string>

namespace popart {

enum class PathToLoss { Yes, No, Undefined };

class Vertex {
 public:
  Vertex() = default;
  virtual ~Vertex() = default;
  Vertex(const Vertex&) : Vertex() {}
  Vertex& operator=(const Vertex&) = delete;
  PathToLoss toLoss{PathToLoss::Undefined};
  virtual std::string str() const = 0;
};

}  // namespace popart
