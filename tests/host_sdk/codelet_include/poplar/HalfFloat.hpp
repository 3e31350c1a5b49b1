// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "host_sdk/abi.hpp"

namespace host_sdk {

inline std::uint16_t toHalfBits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  // 65520 is the smallest float that rounds beyond the largest half: an IPU saturates there, IEEE goes to infinity.
  if (magnitude >= 0x477ff000u) {
    return static_cast<std::uint16_t>(sign | (host_sdk_hooks()->half_saturates ? 0x7bffu : 0x7c00u));
  }
  if (magnitude >= 0x38800000u) {
    const std::uint32_t rebased = magnitude - 0x38000000u;
    return static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);
  const std::uint32_t shift = 126u - (magnitude >> 23);
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t kept = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
  const std::uint32_t midpoint = 1u << (shift - 1u);
  const std::uint32_t up = rest > midpoint || (rest == midpoint && (kept & 1u)) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (kept + up));
}

inline float fromHalfBits(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  std::uint32_t mantissa = half & 0x3ffu;
  std::uint32_t bits;
  if (exponent == 0x1fu) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  } else if (mantissa == 0) {
    bits = sign;
  } else {
    std::uint32_t e = 113u;
    while (!(mantissa & 0x400u)) {
      mantissa <<= 1;
      --e;
    }
    bits = sign | (e << 23) | ((mantissa & 0x3ffu) << 13);
  }
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace host_sdk

/// IEEE half, computed in float and rounded to nearest even on every store.
class half {
 public:
  half() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  half(T value) : bits_(host_sdk::toHalfBits(static_cast<float>(value))) {}
  operator float() const { return host_sdk::fromHalfBits(bits_); }
  half& operator+=(float other) { return *this = half(float(*this) + other); }
  half& operator-=(float other) { return *this = half(float(*this) - other); }
  half& operator*=(float other) { return *this = half(float(*this) * other); }
  half& operator/=(float other) { return *this = half(float(*this) / other); }

 private:
  std::uint16_t bits_;
};
