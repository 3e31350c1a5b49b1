// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

namespace popart {
namespace popx {

enum class InputCreatorType { CanCreate = 0, CanUnwind, CanCreateOrUnwind, Deadend, CanDelegate, CanDelegateOrUnwind };

}  // namespace popx
}  // namespace popart
