// Codelets of the model's own example op: y = scale * x^3 and z = 3 * scale * x^2.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

namespace example {

using poplar::Input;
using poplar::MultiVertex;
using poplar::Output;
using poplar::Vector;
using poplar::VectorLayout;

/// One block of a tile; workers take turns at grains of 8 bytes.
template <typename T>
class ScaledCube : public MultiVertex {
 public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> x;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> cube;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> slope;
  const unsigned size;
  const float scale;

  bool compute(unsigned worker) {
    constexpr unsigned grain = 8 / sizeof(T);
    for (unsigned begin = worker * grain; begin < size; begin += numWorkers() * grain) {
      const unsigned end = begin + grain < size ? begin + grain : size;
      for (unsigned i = begin; i < end; ++i) {
        const float value = float(x[i]);
        cube[i] = T(scale * value * value * value);
        slope[i] = T(3.0f * scale * value * value);
      }
    }
    return true;
  }
};

template class ScaledCube<float>;
template class ScaledCube<half>;

/// The gradient: dx = dcube * 3 scale x^2 + dslope * 6 scale x, over rows that need not touch.
template <typename T>
class ScaledCubeGrad : public MultiVertex {
 public:
  Vector<Input<Vector<T, VectorLayout::ONE_PTR, 8>>> x;
  Vector<Input<Vector<T, VectorLayout::ONE_PTR, 8>>> dcube;
  Vector<Input<Vector<T, VectorLayout::ONE_PTR, 8>>> dslope;
  Vector<Output<Vector<T, VectorLayout::SPAN, 8>>> dx;
  const float scale;

  bool compute(unsigned worker) {
    for (unsigned row = 0; row < dx.size(); ++row) {
      constexpr unsigned grain = 8 / sizeof(T);
      const unsigned size = dx[row].size();
      for (unsigned begin = worker * grain; begin < size; begin += numWorkers() * grain) {
        const unsigned end = begin + grain < size ? begin + grain : size;
        for (unsigned i = begin; i < end; ++i) {
          const float value = float(x[row][i]);
          float sum = 0.0f;
          if (dcube.size() != 0) sum += float(dcube[row][i]) * 3.0f * scale * value * value;
          if (dslope.size() != 0) sum += float(dslope[row][i]) * 6.0f * scale * value;
          dx[row][i] = T(sum);
        }
      }
    }
    return true;
  }
};

template class ScaledCubeGrad<float>;
template class ScaledCubeGrad<half>;

}  // namespace example
