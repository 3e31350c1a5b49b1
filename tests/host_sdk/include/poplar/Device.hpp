// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include "poplar/Target.hpp"
