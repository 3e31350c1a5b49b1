#include <poplar/Vertex.hpp>

class V : public poplar::Vertex {
  poplar::Output<float> y;

 public:
  bool compute() {
    *y = 0.0f;
    return true;
  }
};
