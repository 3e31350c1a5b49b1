// Stands in for a header that PopART's public ones include and that is not public itself.
#pragma once

namespace poprithms {
namespace memory {
namespace inplace {
class Proposal {};
}  // namespace inplace
}  // namespace memory
}  // namespace poprithms
