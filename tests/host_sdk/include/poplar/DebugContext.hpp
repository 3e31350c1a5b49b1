// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "poplar/StringRef.hpp"

namespace poplar {

using DebugId = std::uint64_t;

class SourceLocation {
 public:
  SourceLocation() = default;
  SourceLocation(StringRef function, StringRef file, unsigned line) : function_(function), file_(file), line_(line) {}
  const std::string& getFunctionName() const { return function_; }
  const std::string& getFileName() const { return file_; }
  unsigned getLineNumber() const { return line_; }
  bool isValid() const { return !file_.empty(); }
  static SourceLocation Current(const char* function = __builtin_FUNCTION(), const char* file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) {
    return {function, file, line};
  }

 private:
  std::string function_;
  std::string file_;
  unsigned line_ = 0;
};

class DebugNameAndId {
 public:
  DebugNameAndId(std::string name = "", DebugId id = {}, std::string parent_path = "")
      : name_(std::move(name)), parent_path_(std::move(parent_path)), id_(id) {}
  DebugNameAndId(const char* name) : name_(name) {}
  DebugNameAndId(DebugId id) : id_(id) {}
  DebugNameAndId(const DebugNameAndId& parent, StringRef name = "")
      : name_(name), parent_path_(parent.getPathName()), id_(parent.id_) {}

  std::string getPathName() const {
    if (parent_path_.empty() || name_.empty()) return parent_path_ + name_;
    return parent_path_ + "/" + name_;
  }
  DebugId getParentId() const { return id_; }
  std::string getName() const { return name_; }
  std::string getParentPath() const { return parent_path_; }

 private:
  std::string name_;
  std::string parent_path_;
  DebugId id_ = 0;
};

class DebugContext {
 public:
  DebugContext(SourceLocation = SourceLocation::Current()) {}
  DebugContext(const char* name, SourceLocation = SourceLocation::Current()) : path_(name) {}
  DebugContext(StringRef name, SourceLocation = SourceLocation::Current()) : path_(name) {}
  DebugContext(std::string name, SourceLocation = SourceLocation::Current()) : path_(std::move(name)) {}
  DebugContext(const DebugContext& parent, StringRef name = "") : path_(join(parent.path_, name)) {}
  DebugContext(const DebugNameAndId& parent, StringRef name = "", SourceLocation = SourceLocation::Current())
      : path_(join(parent.getPathName(), name)) {}
  DebugContext& operator=(const DebugContext&) = default;

  std::string getPathName() const { return path_; }

 private:
  static std::string join(const std::string& parent, const std::string& name) {
    return parent.empty() || name.empty() ? parent + name : parent + "/" + name;
  }
  std::string path_;
};

inline std::ostream& operator<<(std::ostream& out, const DebugContext& context) { return out << context.getPathName(); }

}  // namespace poplar
