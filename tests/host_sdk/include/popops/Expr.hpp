// Host model of PopLibs, not PopLibs: see tests/host_sdk/README.md.
#pragma once

#include <memory>
#include <poplar/Tensor.hpp>
#include <poplar/Type.hpp>
#include <popops/ExprOp.hpp>
#include <type_traits>
#include <vector>

namespace popops {
namespace expr {

/// One element of an expression: what type it has, and its value at an index of the inputs.
class Expr {
 public:
  struct Inferred {
    poplar::Type type;
    bool weak;  // a constant, which takes the type of its sibling
  };

  virtual ~Expr() = default;
  virtual std::unique_ptr<Expr> clone() const = 0;
  virtual Inferred infer(const std::vector<poplar::Type>& inputs) const = 0;
  virtual double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                          const poplar::Type& type) const = 0;
};

class Any {
 public:
  Any(const Expr& expr) : expr_(expr.clone()) {}
  Any(const Any& other) : expr_(other.expr_->clone()) {}
  Any& operator=(const Any& other) {
    expr_ = other.expr_->clone();
    return *this;
  }
  operator const Expr&() const { return *expr_; }

 private:
  std::unique_ptr<Expr> expr_;
};

class Const : public Expr {
 public:
  template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
  Const(T value) : Const(static_cast<double>(value), poplar::equivalent_device_type<T>().value) {}
  std::unique_ptr<Expr> clone() const override { return std::make_unique<Const>(*this); }
  Inferred infer(const std::vector<poplar::Type>& inputs) const override;
  double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                  const poplar::Type& type) const override;

 protected:
  Const(double value, const poplar::Type& type) : value_(value), type_(type) {}

 private:
  double value_;
  poplar::Type type_;
};

class ConstHalf : public Const {
 public:
  ConstHalf(float value) : Const(static_cast<double>(value), poplar::HALF) {}
};

class Cast : public Expr {
 public:
  Cast(const Expr& a, const poplar::Type& type) : a_(a.clone()), type_(type) {}
  Cast(const Cast& other) : Cast(*other.a_, other.type_) {}
  std::unique_ptr<Expr> clone() const override { return std::make_unique<Cast>(*this); }
  Inferred infer(const std::vector<poplar::Type>& inputs) const override;
  double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                  const poplar::Type& type) const override;

 private:
  std::unique_ptr<Expr> a_;
  poplar::Type type_;
};

class PlaceHolder : public Expr {
 public:
  explicit PlaceHolder(unsigned index) : index_(index) {}
  std::unique_ptr<Expr> clone() const override { return std::make_unique<PlaceHolder>(*this); }
  Inferred infer(const std::vector<poplar::Type>& inputs) const override;
  double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                  const poplar::Type& type) const override;

 private:
  unsigned index_;
};

inline const PlaceHolder _1(1);
inline const PlaceHolder _2(2);
inline const PlaceHolder _3(3);
inline const PlaceHolder _4(4);
inline const PlaceHolder _5(5);
inline const PlaceHolder _6(6);
inline const PlaceHolder _7(7);
inline const PlaceHolder _8(8);

class UnaryOp : public Expr {
 public:
  UnaryOp(UnaryOpType op, const Expr& a) : op_(op), a_(a.clone()) {}
  UnaryOp(const UnaryOp& other) : UnaryOp(other.op_, *other.a_) {}
  std::unique_ptr<Expr> clone() const override { return std::make_unique<UnaryOp>(*this); }
  Inferred infer(const std::vector<poplar::Type>& inputs) const override;
  double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                  const poplar::Type& type) const override;

 private:
  UnaryOpType op_;
  std::unique_ptr<Expr> a_;
};

class BinaryOp : public Expr {
 public:
  BinaryOp(BinaryOpType op, const Expr& a, const Expr& b) : op_(op), a_(a.clone()), b_(b.clone()) {}
  BinaryOp(const BinaryOp& other) : BinaryOp(other.op_, *other.a_, *other.b_) {}
  std::unique_ptr<Expr> clone() const override { return std::make_unique<BinaryOp>(*this); }
  Inferred infer(const std::vector<poplar::Type>& inputs) const override;
  double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                  const poplar::Type& type) const override;

 private:
  BinaryOpType op_;
  std::unique_ptr<Expr> a_, b_;
};

class TernaryOp : public Expr {
 public:
  TernaryOp(TernaryOpType op, const Expr& a, const Expr& b, const Expr& c)
      : op_(op), a_(a.clone()), b_(b.clone()), c_(c.clone()) {}
  TernaryOp(const TernaryOp& other) : TernaryOp(other.op_, *other.a_, *other.b_, *other.c_) {}
  std::unique_ptr<Expr> clone() const override { return std::make_unique<TernaryOp>(*this); }
  Inferred infer(const std::vector<poplar::Type>& inputs) const override;
  double evaluate(const std::vector<poplar::Type>& inputs, const double* values,
                  const poplar::Type& type) const override;

 private:
  TernaryOpType op_;
  std::unique_ptr<Expr> a_, b_, c_;
};

#define HOST_SDK_UNARY(Name, Op)                         \
  class Name : public UnaryOp {                          \
   public:                                               \
    Name(const Expr& a) : UnaryOp(UnaryOpType::Op, a) {} \
    Name(const Name&) = default;                         \
  };
HOST_SDK_UNARY(Abs, ABSOLUTE)
HOST_SDK_UNARY(Ceil, CEIL)
HOST_SDK_UNARY(Cos, COS)
HOST_SDK_UNARY(Erf, ERF)
HOST_SDK_UNARY(Exp, EXPONENT)
HOST_SDK_UNARY(Floor, FLOOR)
HOST_SDK_UNARY(Inv, INVERSE)
HOST_SDK_UNARY(Log, LOGARITHM)
HOST_SDK_UNARY(Log1p, LOGARITHM_ONE_PLUS)
HOST_SDK_UNARY(Not, LOGICAL_NOT)
HOST_SDK_UNARY(Neg, NEGATE)
HOST_SDK_UNARY(Signum, SIGNUM)
HOST_SDK_UNARY(Sin, SIN)
HOST_SDK_UNARY(Tanh, TANH)
HOST_SDK_UNARY(Sqrt, SQRT)
HOST_SDK_UNARY(Square, SQUARE)
HOST_SDK_UNARY(Sigmoid, SIGMOID)
HOST_SDK_UNARY(Rsqrt, RSQRT)
#undef HOST_SDK_UNARY

#define HOST_SDK_BINARY(Name, Op)                                            \
  class Name : public BinaryOp {                                             \
   public:                                                                   \
    Name(const Expr& a, const Expr& b) : BinaryOp(BinaryOpType::Op, a, b) {} \
  };
HOST_SDK_BINARY(Add, ADD)
HOST_SDK_BINARY(Sub, SUBTRACT)
HOST_SDK_BINARY(Mul, MULTIPLY)
HOST_SDK_BINARY(Divide, DIVIDE)
HOST_SDK_BINARY(Equal, EQUAL)
HOST_SDK_BINARY(NotEqual, NOT_EQUAL)
HOST_SDK_BINARY(Gte, GREATER_THAN_EQUAL)
HOST_SDK_BINARY(Gt, GREATER_THAN)
HOST_SDK_BINARY(Lte, LESS_THAN_EQUAL)
HOST_SDK_BINARY(Lt, LESS_THAN)
HOST_SDK_BINARY(And, LOGICAL_AND)
HOST_SDK_BINARY(Or, LOGICAL_OR)
HOST_SDK_BINARY(Max, MAXIMUM)
HOST_SDK_BINARY(Min, MINIMUM)
HOST_SDK_BINARY(Pow, POWER)
#undef HOST_SDK_BINARY

class Select : public TernaryOp {
 public:
  Select(const Expr& ifTrue, const Expr& ifFalse, const Expr& condition)
      : TernaryOp(TernaryOpType::SELECT, ifTrue, ifFalse, condition) {}
};
class Clamp : public TernaryOp {
 public:
  Clamp(const Expr& value, const Expr& low, const Expr& high) : TernaryOp(TernaryOpType::CLAMP, value, low, high) {}
};

}  // namespace expr
}  // namespace popops
