// Host model of PopART, not PopART: see tests/host_sdk/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <popart/attributes.hpp>
#include <popart/basicoptionals.hpp>
#include <popart/datatype.hpp>
#include <popart/error.hpp>
#include <popart/names.hpp>
#include <popart/opdebuginfo.hpp>
#include <popart/operatoridentifier.hpp>
#include <popart/scope.hpp>
#include <popart/tensorinfo.hpp>
#include <popart/vertex.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace popart {

class AliasModel;
class Graph;
class Ir;
class OpSerialiserBase;
class Tensor;
class TensorIndexMap;

enum class ReductionType { Sum = 0, Mean, NoReduction, N };

enum class GradOpInType { In = 0, Out, GradOut };

class GradInOutMapper {
 public:
  GradInOutMapper(InIndex iGrad_, int iNonGrad_, GradOpInType type_)
      : iGrad(iGrad_), iNonGrad(iNonGrad_), type(type_) {}
  InIndex iGrad;
  int iNonGrad;
  GradOpInType type;
  bool operator==(const GradInOutMapper& rhs) const {
    return iGrad == rhs.iGrad && iNonGrad == rhs.iNonGrad && type == rhs.type;
  }
};

class Op : public Vertex {
 public:
  std::unique_ptr<TensorIndexMap> input;
  std::unique_ptr<TensorIndexMap> output;
  OpId id{-1};
  OperatorIdentifier opid;
  bool pruneable = true;

  struct Settings {
    Settings(Graph& graph_, const std::string& name_) : graph(graph_), name(name_) {}
    Settings(Graph& graph_, const std::string& name_, const Scope& scope_)
        : graph(graph_), name(name_), scope(scope_) {}
    virtual ~Settings() = default;
    Settings(const Settings&) = default;
    Settings copy(const std::string& new_name) {
      Settings s = *this;
      s.name = new_name;
      return s;
    }
    std::reference_wrapper<Graph> graph;
    std::string name = "";
    Scope scope;
    OptionalVGraphId vgraphId;
    double schedulePriority{0.0};
    std::map<std::string, std::string> extraOutlineAttributes;
    Ir& getIr() const;
  };

  Settings settings;
  OpDebugInfo debugInfo;
  Settings& getSettings() { return settings; }
  const Settings& getSettings() const { return settings; }
  Ir& getIr();
  const Ir& getIr() const;
  Graph& getGraph() { return settings.graph.get(); }
  const Graph& getGraph() const { return settings.graph.get(); }
  const std::string& getName() const { return settings.name; }
  const OpDebugInfo& getDebugInfo() const { return debugInfo; }
  bool hasVirtualGraphId() const { return false; }

  Op(const OperatorIdentifier& _opid, const Op::Settings& settings);
  Op(const Op&);
  Op& operator=(const Op&) = delete;
  virtual ~Op();

  std::string str() const final;
  std::string debugName() const;
  const std::string& name() const { return settings.name; }

  virtual std::set<InIndex> optionalInputs() const { return {}; }
  virtual void connectInTensor(InIndex index, TensorId tensorId);
  void createAndConnectOutTensor(OutIndex index, TensorId tensorId);
  void disconnectInTensor(InIndex index);

  virtual void setup();
  virtual std::vector<std::unique_ptr<Op>> getGradOps();
  virtual std::vector<std::tuple<OperatorIdentifier, float>> inplacePriorityDefault() const;
  virtual std::unique_ptr<Op> getInplaceVariant(const OperatorIdentifier& operator_id) const;
  virtual void growAliasModel(AliasModel& aliasModel) const;

  virtual view::Regions modifies(InIndex index) const;
  virtual view::Regions uses(InIndex index) const;
  virtual view::Regions aliases(InIndex in, OutIndex out) const;
  virtual view::RegMap fwdRegMap(InIndex in, OutIndex out) const;
  virtual view::RegMap bwdRegMap(InIndex in, OutIndex out) const;
  bool modifiesIndex(InIndex in) const;
  bool doesAlias(InIndex in, OutIndex out) const;

  virtual int getNonGradInIndex(int gradOpOutIndex) const;
  virtual const std::vector<GradInOutMapper>& gradInputInfo() const;
  virtual const std::map<int, int>& gradOutToNonGradIn() const;

  virtual std::unique_ptr<Op> clone() const = 0;
  template <typename T>
  bool isConvertibleTo() const {
    return dynamic_cast<const T*>(this) != nullptr;
  }

  virtual bool isLossOp() const { return false; }
  virtual bool isOptimizerOp() const { return false; }
  virtual bool requiresRandomSeed() const { return false; }
  virtual bool canBeReplacedByIdentity() const { return false; }
  virtual bool isOutlineable() const { return true; }
  virtual bool hasSideEffect() const { return false; }
  virtual bool canShard() const { return false; }
  virtual int getInBatchAxis(InIndex) const { return 0; }
  virtual int getOutBatchAxis(OutIndex) const { return 0; }

  bool hasInput(InIndex index) const;
  bool hasOutput(OutIndex index) const;
  Tensor* inTensor(InIndex index);
  const Tensor* inTensor(InIndex index) const;
  Tensor* outTensor(OutIndex index);
  const Tensor* outTensor(OutIndex index) const;
  TensorId inId(InIndex index);
  const TensorId inId(InIndex index) const;
  TensorId outId(OutIndex index);
  const TensorId outId(OutIndex index) const;
  TensorInfo& inInfo(InIndex index);
  const TensorInfo& inInfo(InIndex index) const;
  TensorInfo& outInfo(OutIndex index);
  const TensorInfo& outInfo(OutIndex index) const;
  const Shape& inShape(InIndex index) const;
  const Shape& outShape(OutIndex index) const;
  size_t inTensorCount() const;
  size_t outTensorCount() const;
  Rank inRank(InIndex index) const;
  Rank outRank(OutIndex index) const;

  virtual void appendAttributes(OpSerialiserBase& os) const;
  virtual void appendOutlineAttributes(OpSerialiserBase& os) const;
  std::string getSubgraphEquivId() const;

  virtual float getSubgraphValue() const = 0;
  float getHighSubgraphValue() const { return 1000.0f; }
  float getLowSubgraphValue() const { return 0.1f; }

  /// The attributes the op was made from, or those of the op it is the gradient of.
  std::string hostAttributes;
};

}  // namespace popart
