#include <poplar/Vertex.hpp>

class V : public poplar::Vertex {
 public:
  poplar::Input<float> x;
  poplar::Output<float> y;
  bool compute() {
    *y = static_cast<float>(*x * 0.5);
    return true;
  }
};
