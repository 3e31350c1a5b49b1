#include <poplar/Vertex.hpp>
#include <vector>

class V : public poplar::Vertex {
 public:
  poplar::Output<float> y;
  bool compute() {
    *y = 0.0f;
    return true;
  }
};
