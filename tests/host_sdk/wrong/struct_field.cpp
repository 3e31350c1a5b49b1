#include <poplar/Vertex.hpp>

struct Pair {
  float a, b;
};

class V : public poplar::Vertex {
 public:
  Pair pair;
  poplar::Output<float> y;
  bool compute() {
    *y = pair.a;
    return true;
  }
};
