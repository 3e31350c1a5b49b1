// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

namespace popops {

enum class Operation { ADD, MUL, MIN, MAX, LOGICAL_AND, LOGICAL_OR, SQUARE_ADD, LOG_ADD };

}  // namespace popops
