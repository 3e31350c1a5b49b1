// Scalar types and functions for generated kernels. Everything is branch-free so that loops over it vectorise.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace snn {

template <class To, class From>
inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits: sizes differ");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

struct bf16 {
  uint16_t raw;
};
struct f16 {
  uint16_t raw;
};

inline float load(float v) { return v; }
inline double load(double v) { return v; }
inline float load(bf16 v) { return bits<float>(uint32_t(v.raw) << 16); }
inline float load(f16 v) {
  const uint32_t magnitude = uint32_t(v.raw & 0x7fff) << 13;
  const uint32_t sign = uint32_t(v.raw & 0x8000) << 16;
  const float scaled = bits<float>(magnitude) * 0x1p112f;  // subnormal halves come out right as well
  const uint32_t infinite = magnitude | 0x7f800000;
  const uint32_t finite = bits<uint32_t>(scaled);
  return bits<float>((magnitude >= (0x7c00u << 13) ? infinite : finite) | sign);
}

inline void store(float* to, float v) { *to = v; }
inline void store(double* to, double v) { *to = v; }
inline void store(bf16* to, float v) {
  const uint32_t b = bits<uint32_t>(v);
  const uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  to->raw = uint16_t((b & 0x7fffffff) > 0x7f800000 ? (b >> 16) | 0x40 : rounded);
}
inline void store(f16* to, float v) {
  const uint32_t b = bits<uint32_t>(v);
  const uint32_t sign = (b >> 16) & 0x8000;
  const uint32_t a = b & 0x7fffffff;
  const uint32_t normal = (a + 0xc8000fff + ((a >> 13) & 1)) >> 13;
  // Adding 0.5 aligns a subnormal half's last bit with the float's last bit; the hardware rounds it.
  const uint32_t subnormal = bits<uint32_t>(bits<float>(a) + 0.5f) - 0x3f000000;
  const uint32_t special = a > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t finite = a < 0x38800000 ? subnormal : normal;
  to->raw = uint16_t((a >= 0x477ff000 ? special : finite) | sign);
}

// Keeps the sign of a kept value through rounding, so that a spike decided from it again is the same spike.
template <class K>
inline void store_signed(K* to, float v) {
  store(to, v);
  const uint16_t smallest = v > 0 ? 1 : 0x8001;
  to->raw = (to->raw & 0x7fff) == 0 && v != 0 ? smallest : to->raw;
}
inline void store_signed(float* to, float v) { *to = v; }
inline void store_signed(double* to, double v) { *to = v; }

template <class S>
struct exp_table;
template <>
struct exp_table<float> {
  using word = uint32_t;
  static constexpr float shift = 0x1.8p23f, high = 0x1.62e4p-1f, low = 0x1.7f7d1cp-20f;
  static constexpr float top = 88.8f, bottom = -104.f;
  static constexpr int mantissa = 23, bias = 127;
};
template <>
struct exp_table<double> {
  using word = uint64_t;
  static constexpr double shift = 0x1.8p52, high = 0x1.62e42fefa3800p-1, low = 0x1.ef35793c76730p-45;
  static constexpr double top = 709.9, bottom = -746.0;
  static constexpr int mantissa = 52, bias = 1023;
};

inline float exp_tail(float r) {
  const float p = 1 / 6.f + r * (1 / 24.f + r * (1 / 120.f + r * (1 / 720.f + r * (1 / 5040.f))));
  return r + r * r * (0.5f + r * p);
}
inline double exp_tail(double r) {
  double p = 1 / 6227020800.0;
  const double c[] = {1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0,
                      1 / 720.0,       1 / 120.0,      1 / 24.0,      1 / 6.0,      0.5};
  for (double k : c) p = k + r * p;
  return r + r * r * p;
}

// 2^n - 1 and e^r - 1 with x = n ln 2 + r, n split in two so that the largest and smallest results stay in range.
template <class S>
inline S exp_(S x) {
  using E = exp_table<S>;
  using W = typename E::word;
  const S limited = x > E::top ? E::top : (x < E::bottom ? E::bottom : x);
  const S shifted = limited * S(1.4426950408889634) + E::shift;
  const S n = shifted - E::shift;
  const S r = (limited - n * E::high) - n * E::low;
  const S half = (n * S(0.5) + E::shift) - E::shift;
  const W one = bits<W>(E::shift);
  const S scale1 = bits<S>(W(bits<W>(half + E::shift) - one + E::bias) << E::mantissa);
  const S scale2 = bits<S>(W(bits<W>((n - half) + E::shift) - one + E::bias) << E::mantissa);
  const S result = ((S(1) + exp_tail(r)) * scale1) * scale2;
  return x != x ? x : result;
}

template <class S>
inline S expm1_(S x) {
  using E = exp_table<S>;
  using W = typename E::word;
  const S n = (x * S(1.4426950408889634) + E::shift) - E::shift;
  const S r = (x - n * E::high) - n * E::low;
  const S scale = bits<S>(W(bits<W>(n + E::shift) - bits<W>(E::shift) + E::bias) << E::mantissa);
  return scale * exp_tail(r) + (scale - S(1));
}

template <class S>
inline S tanh_(S x) {
  const S a = x < 0 ? -x : x;
  const S limited = a > S(20) ? S(20) : a;
  const S e = expm1_(S(2) * limited);
  const S t = e / (e + S(2));
  return x != x ? x : (x < 0 ? -t : t);
}

template <class S>
inline S sigmoid_(S x) {
  const S e = exp_(x < 0 ? x : -x);
  const S s = S(1) / (S(1) + e);
  return x < 0 ? e * s : s;
}

template <class S>
inline S log_(S x) {
  using E = exp_table<S>;
  using W = typename E::word;
  const S tiny = bits<S>(W(1) << E::mantissa);
  const bool small = x < tiny;
  const S lift = bits<S>(W(E::bias + E::mantissa + 1) << E::mantissa);
  const W b = bits<W>(small ? x * lift : x);
  const W centre = bits<W>(S(0.70710678118654752));
  const W offset = (W(b - centre + (W(E::bias) << E::mantissa)) >> E::mantissa) - W(E::bias);
  const S m = bits<S>(W(b - (offset << E::mantissa)));
  const S exponent = S(int32_t(offset)) - (small ? S(E::mantissa + 1) : S(0));
  const S f = m - S(1);
  const S s = f / (S(2) + f);
  const S z = s * s;
  S p = S(1 / 23.0);
  const S c[] = {S(1 / 21.0), S(1 / 19.0), S(1 / 17.0), S(1 / 15.0), S(1 / 13.0),
                 S(1 / 11.0), S(1 / 9.0),  S(1 / 7.0),  S(1 / 5.0),  S(1 / 3.0)};
  for (S k : c) p = k + z * p;
  const S result = exponent * E::high + (S(2) * s + (S(2) * s * z * p + exponent * E::low));
  const S infinite = x < 0 ? S(NAN) : (x == 0 ? S(-INFINITY) : x);
  return x > 0 && x < S(INFINITY) ? result : infinite;
}

template <class S>
inline S sign_(S x) {
  return x > 0 ? S(1) : (x < 0 ? S(-1) : S(0));
}
template <class S>
inline S abs_(S x) {
  return x < 0 ? -x : (x == 0 ? S(0) : x);
}
template <class S>
inline S min_(S a, S b) {
  return a < b || a != a ? a : b;
}
template <class S>
inline S max_(S a, S b) {
  return a > b || a != a ? a : b;
}

// The OpenMP runtime to use: the addresses of GOMP_parallel and omp_get_thread_num.
struct Runtime {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  int (*thread_number)();
};

// Every thread starts with a share of neighbouring blocks, the same in every launch, so that what it wrote before is
// still in its cache; then it helps the others. What a block computes depends on no thread.
template <class Work>
struct Shares {
  struct alignas(64) Share {
    int64_t next, end;
  };
  const Work& work;
  const Runtime& runtime;
  int64_t count;
  Share* shares;

  static void run(void* self) {
    const auto& all = *static_cast<Shares*>(self);
    const int64_t own = all.runtime.thread_number();
    for (int64_t i = 0; i < all.count; ++i) {
      Share& share = all.shares[(own + i) % all.count];
      for (int64_t block; (block = __atomic_fetch_add(&share.next, 1, __ATOMIC_RELAXED)) < share.end;) all.work(block);
    }
  }
};

// Calls work(block) for every block, on one thread where there is no runtime.
template <class Work>
inline void for_blocks(int64_t blocks, int64_t threads, const Runtime* runtime, const Work& work) {
  const int64_t count = threads < blocks ? threads : blocks;
  if (count <= 1 || runtime == nullptr) {
    for (int64_t block = 0; block < blocks; ++block) work(block);
    return;
  }
  Shares<Work> all{work, *runtime, count, new typename Shares<Work>::Share[count]};
  for (int64_t i = 0; i < count; ++i) all.shares[i] = {blocks * i / count, blocks * (i + 1) / count};
  runtime->parallel(&Shares<Work>::run, &all, unsigned(count), 0);
  delete[] all.shares;
}

}  // namespace snn
