// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#ifndef ONNX_NAMESPACE
#error "compile PopART custom ops with -DONNX_NAMESPACE=onnx"
#endif

namespace popart {

using Shape = std::vector<int64_t>;
using Rank = int;
using TensorId = std::string;
using OpName = std::string;
using OpDomain = std::string;
using OpType = std::string;
using OpVersion = unsigned;
using OpId = int;
using InIndex = int;
using OutIndex = int;
using VGraphId = int64_t;
static constexpr const VGraphId unusedVGraphId = -1;

class Op;
class Graph;

namespace view {
class Region;
using Regions = std::vector<Region>;
using RegMap = std::function<Regions(const Region&)>;
}  // namespace view

}  // namespace popart
