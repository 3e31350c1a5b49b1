// Arithmetic of generated codelets, in float: a step is evaluated for two neurons at once, a float2 on an IPU.
// This text is put at the top of every generated file.
#include <cmath>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

#ifdef __IPU__
#include <ipu_intrinsics>
#include <ipu_vector_math>
#define SNN_MATH ipu
#else
#define SNN_MATH std
#endif

namespace snn {

constexpr unsigned kLanes = 2;
typedef float S __attribute__((vector_size(8)));
typedef float Stored __attribute__((vector_size(8), may_alias));
// What a comparison gives: all bits of a lane, as ints with g++ and as longs with popc.
using M = decltype(S{} > S{});

inline S splat(float v) { return S{v, v}; }
inline S select_(M m, S a, S b) { return (S)((m & (M)a) | (~m & (M)b)); }

template <class F>
inline S each(S v, F f) {
  return S{f(v[0]), f(v[1])};
}

inline float sigmoid1(float v) {
#ifdef __IPU__
  return ipu::sigmoid(v);
#else
  const float e = std::exp(v < 0 ? v : -v);
  return v < 0 ? e / (1.0f + e) : 1.0f / (1.0f + e);
#endif
}

inline S sqrt_(S v) {
  return each(v, [](float u) { return SNN_MATH::sqrt(u); });
}
inline S exp_(S v) {
  return each(v, [](float u) { return SNN_MATH::exp(u); });
}
inline S log_(S v) {
  return each(v, [](float u) { return SNN_MATH::log(u); });
}
inline S tanh_(S v) {
  return each(v, [](float u) { return SNN_MATH::tanh(u); });
}
inline S erf_(S v) {
  return each(v, [](float u) { return SNN_MATH::erf(u); });
}
inline S sigmoid_(S v) { return each(v, sigmoid1); }
inline S atan_(S v) {
  return each(v, [](float u) { return std::atan(u); });
}
inline S pow_(S a, S b) { return S{SNN_MATH::pow(a[0], b[0]), SNN_MATH::pow(a[1], b[1])}; }
inline S abs_(S v) { return (S)((M)v & M{0x7fffffff, 0x7fffffff}); }
inline S sign_(S v) {
  return select_(v > splat(0.0f), splat(1.0f), select_(v < splat(0.0f), splat(-1.0f), splat(0.0f)));
}
// As torch: NaN wins.
inline S min_(S a, S b) { return select_((a < b) | (a != a), a, b); }
inline S max_(S a, S b) { return select_((a > b) | (a != a), a, b); }

inline S load(const float* from) { return *reinterpret_cast<const Stored*>(from); }
inline void store(float* to, S v) { *reinterpret_cast<Stored*>(to) = v; }
#ifdef __IPU__
// Both halves in one 32-bit store: a 16-bit store reads and writes the word it shares with another worker.
inline S load(const half* from) {
  const half2 h = *reinterpret_cast<const half2*>(from);
  return S{float(h[0]), float(h[1])};
}
inline void store(half* to, S v) { *reinterpret_cast<half2*>(to) = half2{half(v[0]), half(v[1])}; }
#else
inline S load(const half* from) { return S{float(from[0]), float(from[1])}; }
inline void store(half* to, S v) {
  to[0] = half(v[0]);
  to[1] = half(v[1]);
}
#endif

// Keeps the sign of a kept value through rounding, so that a spike decided from it again is the same spike.
inline void storeSigned(float* to, S v) { store(to, v); }
inline void storeSigned(half* to, S v) {
  constexpr float smallest = 5.9604645e-8f;
  const M tiny = (abs_(v) < splat(smallest)) & (v != splat(0.0f));
  store(to, select_(tiny, sign_(v) * splat(smallest), v));
}

}  // namespace snn
