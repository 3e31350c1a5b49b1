// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include "poplar/Type.hpp"

namespace poplar {

enum class TargetType { IPU, IPU_MODEL, CPU };

class Target {
 public:
  TargetType getTargetType() const { return type_; }
  unsigned getNumIPUs() const { return 1; }
  unsigned getTilesPerIPU() const { return tiles_; }
  unsigned getNumTiles() const { return tiles_; }
  unsigned getNumWorkerContexts() const { return workers_; }
  unsigned getBytesPerTile() const { return bytes_per_tile_; }
  unsigned getExchangeBytesPerCycle() const { return 4; }
  unsigned getDataPathWidth() const { return 64; }
  unsigned getTypeSize(const Type& type) const;
  unsigned getVectorWidth(const Type& type) const;
  unsigned getFloatVectorWidth() const { return 2; }
  unsigned getHalfVectorWidth() const { return 4; }
  unsigned getAtomicStoreGranularity() const { return 4; }
  unsigned getRptCountMax() const { return 4095; }
  double getTileClockFrequency() const { return 1.85e9; }

  // The host model's own factory: a Mk2 as an IPU model, unless told otherwise.
  static Target hostModel(TargetType type, unsigned tiles, unsigned workers, unsigned bytes_per_tile);

 private:
  TargetType type_ = TargetType::IPU_MODEL;
  unsigned tiles_ = 1472;
  unsigned workers_ = 6;
  unsigned bytes_per_tile_ = 624 * 1024;
};

}  // namespace poplar
