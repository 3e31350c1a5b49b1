// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <popart/error.hpp>
#include <popart/operatoridentifier.hpp>
#include <string>
#include <vector>

namespace popart {

class Op;

namespace popx {

class Devicex;
class Opx;

class OpxManager {
 public:
  using OpxFactoryFunc = std::function<std::unique_ptr<Opx>(Op* op, Devicex* devicex)>;
  static void registerOpx(const OperatorIdentifier& opid, OpxFactoryFunc func);
  static std::unique_ptr<Opx> createOpx(Op* op, Devicex* devicex);

 private:
  OpxManager() = default;
  static OpxManager& getInstance();
  std::map<OperatorIdentifier, OpxFactoryFunc, OperatorIdentifierLess> factory;
};

template <class OPX>
class OpxCreator {
 public:
  OpxCreator(const OperatorIdentifier& opid) : OpxCreator(std::vector<OperatorIdentifier>{opid}) {}
  OpxCreator(const std::vector<OperatorIdentifier>& opids) {
    for (const auto& opid : opids) {
      OpxManager::registerOpx(opid, [](Op* op, Devicex* devicex) -> std::unique_ptr<Opx> {
        return std::unique_ptr<OPX>(new OPX(op, devicex));
      });
    }
  }
};

}  // namespace popx
}  // namespace popart
