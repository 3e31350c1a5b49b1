// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <popart/datatype.hpp>
#include <popart/error.hpp>
#include <popart/names.hpp>
#include <string>
#include <vector>

namespace popart {

class TensorInfo {
 public:
  TensorInfo() = default;
  TensorInfo(DataType type, const Shape& shape) { set(type, shape); }
  TensorInfo(std::string data_type, const Shape& shape);

  void set(DataType type);
  void set(DataType type, const Shape& shape);
  const Shape& shape() const { return shape_v; }
  std::vector<size_t> shape_szt() const { return std::vector<size_t>(shape_v.begin(), shape_v.end()); }
  Rank rank() const { return static_cast<int>(shape_v.size()); }
  int64_t nelms() const;
  int64_t nbytes() const;
  int64_t dim(int i) const {
    if (i >= static_cast<int>(shape_v.size())) {
      throw error("Invalid input dimension {}, tensor of rank {}", i, shape_v.size());
    }
    return shape_v[static_cast<size_t>(i)];
  }
  DataType dataType() const;
  const std::string& data_type() const;
  bool isSet() const { return is_set; }
  bool operator==(const TensorInfo& other) const { return type == other.type && shape_v == other.shape_v; }
  bool operator!=(const TensorInfo& other) const { return !(*this == other); }

 private:
  bool is_set = false;
  DataType type = DataType::UNDEFINED;
  Shape shape_v;
};

std::ostream& operator<<(std::ostream& stream, const TensorInfo& info);

}  // namespace popart
