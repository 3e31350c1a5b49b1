#include <poplar/Vertex.hpp>

class V : public poplar::Vertex {
 public:
  poplar::Output<float> y;
  bool compute() {
    double sum = 1;
    *y = static_cast<float>(sum);
    return true;
  }
};
