#include <poplar/Vertex.hpp>

template <typename T>
class V : public poplar::Vertex {
 public:
  poplar::Output<T> y;
  bool compute() {
    *y = T(0);
    return true;
  }
};
