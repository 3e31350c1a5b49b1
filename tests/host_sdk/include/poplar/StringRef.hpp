// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <cstring>
#include <ostream>
#include <string>

namespace poplar {

class StringRef {
 public:
  StringRef() = default;
  StringRef(const char* text) : data_(text), size_(std::strlen(text)) {}
  StringRef(const char* text, std::size_t size) : data_(text), size_(size) {}
  StringRef(const std::string& text) : data_(text.data()), size_(text.size()) {}

  const char* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::string str() const { return std::string(data_, size_); }
  std::string cloneAsString() const { return str(); }
  operator std::string() const { return str(); }

 private:
  const char* data_ = "";
  std::size_t size_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const StringRef& text) { return out << text.str(); }

}  // namespace poplar
