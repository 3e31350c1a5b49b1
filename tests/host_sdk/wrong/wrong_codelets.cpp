// Codelets with one mistake each, all of which Poplar refuses or an IPU computes wrongly.
#include <cstdint>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

namespace wrong {

using poplar::InOut;
using poplar::Input;
using poplar::MultiVertex;
using poplar::Output;
using poplar::Vector;
using poplar::VectorLayout;
using poplar::Vertex;

/// Right: y = x + bias. The graphs around it are wrong.
template <typename T>
class AddBias : public Vertex {
 public:
  Input<Vector<T>> x;
  Output<Vector<T>> y;
  const float bias;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] = T(float(x[i]) + bias);
    return true;
  }
};
template class AddBias<float>;
template class AddBias<half>;

/// Right, on rows.
class CopyRows : public Vertex {
 public:
  Vector<Input<Vector<float, VectorLayout::ONE_PTR>>> x;
  Vector<Output<Vector<float>>> y;
  bool compute() {
    for (unsigned r = 0; r < y.size(); ++r) {
      for (unsigned i = 0; i < y[r].size(); ++i) y[r][i] = x[r][i];
    }
    return true;
  }
};

class ShortSpan : public Vertex {
 public:
  Input<Vector<float, VectorLayout::SHORT_SPAN>> x;
  Output<Vector<float>> y;
  unsigned short count;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] = x[i];
    return true;
  }
};

class LeavesLastElement : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i + 1 < y.size(); ++i) y[i] = x[i];
    return true;
  }
};

class AccumulatesIntoOutput : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] += x[i];
    return true;
  }
};

class WritesInput : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] = x[i];
    *const_cast<float*>(&x[0]) = 3.0f;
    return true;
  }
};

class WritesPastEnd : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i <= y.size(); ++i) y.data()[i] = 1.0f;
    return true;
  }
};

class WritesBeforeStart : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] = 1.0f;
    y.data()[-1] = 1.0f;
    return true;
  }
};

class ReadsPastEnd : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i < y.size(); ++i) y[i] = x.data()[i + 1];
    return true;
  }
};

/// Loads 64 bits at a time without asking for 8-byte alignment.
class LoadsPairs : public Vertex {
 public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;
  bool compute() {
    const auto* pairs = reinterpret_cast<const std::uint64_t*>(x.data());
    for (unsigned i = 0; i < y.size(); ++i) y[i] = pairs[i / 2] == 0 ? 0.0f : 1.0f;
    return true;
  }
};

/// Workers take turns at single halves, two of which share a word.
class InterleavesHalves : public MultiVertex {
 public:
  Input<Vector<half, VectorLayout::SPAN, 8>> x;
  Output<Vector<half, VectorLayout::SPAN, 8>> y;
  bool compute(unsigned worker) {
    for (unsigned i = worker; i < y.size(); i += numWorkers()) y[i] = x[i];
    return true;
  }
};

/// Each worker reads what the one before it wrote.
class ChainsWorkers : public MultiVertex {
 public:
  Input<Vector<float, VectorLayout::SPAN, 8>> x;
  InOut<Vector<float, VectorLayout::SPAN, 8>> y;
  bool compute(unsigned worker) {
    for (unsigned i = worker; i < y.size(); i += numWorkers()) y[i] = x[i] + (i ? y[i - 1] : 0.0f);
    return true;
  }
};

/// Leaves most of the work undone where there is one worker, as on the cpu target.
class AssumesSixWorkers : public MultiVertex {
 public:
  Input<Vector<float, VectorLayout::SPAN, 8>> x;
  Output<Vector<float, VectorLayout::SPAN, 8>> y;
  bool compute(unsigned worker) {
    for (unsigned i = worker; i < y.size(); i += 6) y[i] = x[i];
    return true;
  }
};

}  // namespace wrong
