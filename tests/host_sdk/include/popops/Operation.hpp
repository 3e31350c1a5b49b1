// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

#include <popops/OperationDef.hpp>
