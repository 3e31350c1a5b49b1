// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
// Fields are a pointer and a length; the runtime fills them in, and checks what was done through them afterwards.
#pragma once

#include "host_sdk/abi.hpp"
#include "poplar/HalfFloat.hpp"
#include "poplar/VectorTypes.hpp"

namespace poplar {

template <class T, VectorLayout L = VectorLayout::SPAN, unsigned MinAlign = alignof(T), bool Interleaved = false>
class Vector;

namespace host {

template <class T, VectorLayout L>
class View {
 public:
  T& operator[](unsigned i) const { return data_[i]; }
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size(); }
  unsigned size() const {
    static_assert(hostHasSize(L), "only SPAN and SHORT_SPAN vectors know their size: add a count field");
    return static_cast<unsigned>(size_);
  }

 private:
  T* data_;
  unsigned long size_;
};

template <class T>
class Scalar {
 public:
  T& operator*() const { return *data_; }
  T* operator->() const { return data_; }
  operator T&() const { return *data_; }

 private:
  T* data_;
  unsigned long size_;
};

}  // namespace host

/// Vertex state with more than one element, set by the host.
template <class T, VectorLayout L, unsigned MinAlign, bool Interleaved>
class Vector : public host::View<T, L> {};

template <class T>
class Input : public host::Scalar<const T> {};
template <class T, VectorLayout L, unsigned A, bool I>
class Input<Vector<T, L, A, I>> : public host::View<const T, L> {};

template <class T>
class Output : public host::Scalar<T> {};
template <class T, VectorLayout L, unsigned A, bool I>
class Output<Vector<T, L, A, I>> : public host::View<T, L> {};

template <class T>
class InOut : public host::Scalar<T> {};
template <class T, VectorLayout L, unsigned A, bool I>
class InOut<Vector<T, L, A, I>> : public host::View<T, L> {};

class VertexBase {};

class Vertex : public VertexBase {};

class MultiVertex : public VertexBase {
 public:
  static unsigned numWorkers() { return host_sdk_hooks()->workers; }
};

}  // namespace poplar
