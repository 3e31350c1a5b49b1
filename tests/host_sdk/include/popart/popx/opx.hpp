// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <popart/error.hpp>
#include <popart/names.hpp>
#include <popart/op.hpp>
#include <popart/operatoridentifier.hpp>
#include <popart/popx/inputcreatortype.hpp>
#include <poplar/DebugContext.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Tensor.hpp>
#include <poplar/Type.hpp>
#include <popops/ExprOp.hpp>
#include <set>
#include <sstream>
#include <string>
#include <typeinfo>
#include <vector>

namespace poplar {
class Graph;
namespace program {
class Sequence;
}
}  // namespace poplar

namespace popart {

class Tensor;
class TensorInfo;

namespace popx {

class Devicex;

class Opx {
 public:
  Opx(Op* op, Devicex* devicex);
  virtual ~Opx();

  virtual poplar::Tensor createInput(InIndex index, const poplar::DebugNameAndId& dnai) const;
  virtual InputCreatorType getInputCreatorType(InIndex index) const;
  virtual bool canUnwind(InIndex in, OutIndex out) const;
  virtual view::RegMap unwindRegion(InIndex in, OutIndex out) const;
  virtual poplar::Tensor unwindTensorLayout(poplar::Tensor tensor, InIndex in, OutIndex out) const;
  virtual bool createsEquiv(int index0, const Opx* opx1, int index1) const;
  virtual bool outputCreatedExternally(OutIndex index) const;
  virtual std::set<TensorId> mustExistBeforeCreate(int index0) const;

  poplar::Tensor cloneNcopy(poplar::program::Sequence& prog, TensorId id) const;
  poplar::Tensor cloneNcopy(poplar::program::Sequence& prog, const poplar::Tensor& tensor,
                            const std::string name = "") const;

  const Devicex* getDevicex() const { return dv_p; }
  int64_t getVirtualGraphId() const { return 0; }
  poplar::Graph& graph() const;
  poplar::Graph& topLevelGraph() const;
  virtual poplar::Graph& srcGraph(InIndex index) const;
  virtual poplar::Graph& dstGraph(OutIndex index) const;
  const poplar::Tensor& get(TensorId id) const;
  void insert(TensorId id, const poplar::Tensor& tensor) const;
  Tensor* inTensor(InIndex index) const;
  Tensor* outTensor(OutIndex index) const;
  const poplar::Tensor& getInTensor(InIndex index) const;
  const poplar::Tensor& getOutTensor(OutIndex index) const;
  const TensorInfo& inInfo(InIndex index) const;
  const Shape& inShape(InIndex index) const;
  const TensorInfo& outInfo(OutIndex index) const;
  const Shape& outShape(OutIndex index) const;
  const std::vector<size_t> inShapeSzt(InIndex index) const;

  template <class OP>
  OP& getOp() const {
    OP* d_op = dynamic_cast<OP*>(op_p);
    if (d_op == nullptr) {
      throw error("Failed to cast to op ({}) derived op ({}), type:{} ", typeid(op_p).name(), typeid(d_op).name(),
                  op_p->opid);
    }
    return *d_op;
  }
  template <class OP>
  void verifyOp(Op* op, const OperatorIdentifier& opid) {
    if (op->opid.domain != opid.domain || op->opid.type != opid.type) {
      throw error("Cannot create opx for {} from {}", opid, op->opid);
    }
  }
  template <class OP>
  void verifyOp(Op* op, std::vector<OperatorIdentifier> opids) {
    for (const auto& opid : opids) {
      if (op->opid == opid) return;
    }
    throw error("In Opx::verifyOp, for op {}. Failed to verify, as valid opids are : {}", op->str(), opids);
  }
  template <class OP>
  void verifyOp(Op* op) {
    if (!op->isConvertibleTo<OP>()) throw error("Cannot create opx type from {}", op->opid);
  }

  bool hasInput(InIndex index) const;
  bool hasOutput(OutIndex index) const;
  void setOutTensor(OutIndex index, const poplar::Tensor& tensor) const;
  TensorId inId(InIndex index) const;
  TensorId outId(OutIndex index) const;
  poplar::Tensor getConst(const poplar::Type& type, const std::vector<size_t>& shape, double val,
                          const std::string& name) const;
  poplar::Tensor getScalarVariable(const poplar::Type& type, const std::string& name) const;
  poplar::Tensor getZerosTensor(std::vector<std::size_t> shape, poplar::Type elem_type, std::string name) const;
  poplar::Graph& inGraph(InIndex in) const;
  poplar::Graph& outGraph(OutIndex out) const;

  virtual void grow(poplar::program::Sequence& prog) const;

  const popart::DebugInfo& getDebugInfo() const { return op_p->getDebugInfo(); }
  const poplar::DebugNameAndId getDebugNameAndId(const std::string name = "",
                                                 poplar::SourceLocation loc = poplar::SourceLocation::Current()) const;
  poplar::DebugContext debugContext(const std::string name = "",
                                    poplar::SourceLocation loc = poplar::SourceLocation::Current()) const;

  double inputCreatorPriority{0.0};
  Op* op_p;

 protected:
  Devicex* dv_p;
};

}  // namespace popx
}  // namespace popart
