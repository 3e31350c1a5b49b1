#include <poplar/Vertex.hpp>

class V : public poplar::Vertex {
 public:
  poplar::Output<poplar::Vector<float, poplar::VectorLayout::ONE_PTR>> y;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] = 0.0f;
    return true;
  }
};
