// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

namespace popart {

struct SessionOptions {
  bool enableOutlining = true;
  bool opxAliasChecking = false;
  bool opxModifyChecking = false;
};

}  // namespace popart
