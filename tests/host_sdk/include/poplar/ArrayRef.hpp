// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <array>
#include <initializer_list>
#include <vector>

namespace poplar {

template <class T>
class ArrayRef {
 public:
  using const_iterator = const T*;

  ArrayRef() = default;
  ArrayRef(const T* data, std::size_t size) : data_(data), size_(size) {}
  ArrayRef(const std::vector<T>& values) : data_(values.data()), size_(values.size()) {}
  template <std::size_t N>
  ArrayRef(const std::array<T, N>& values) : data_(values.data()), size_(N) {}
  template <std::size_t N>
  ArrayRef(const T (&values)[N]) : data_(values), size_(N) {}
#pragma GCC diagnostic push
#if defined(__GNUC__) && __GNUC__ >= 9
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  // The list outlives the reference only within the call it is an argument of, as in Poplar.
  ArrayRef(std::initializer_list<T> values) : data_(values.begin()), size_(values.size()) {}
#pragma GCC diagnostic pop

  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return data_ + size_; }
  std::vector<T> cloneAsVector() const { return std::vector<T>(begin(), end()); }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace poplar
