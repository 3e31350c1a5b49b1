#include <poplar/Vertex.hpp>

class V : public poplar::Vertex {
 public:
  float table[4];
  poplar::Output<float> y;
  bool compute() {
    *y = table[0];
    return true;
  }
};
