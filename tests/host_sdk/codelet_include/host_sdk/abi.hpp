// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
// What a compiled codelet library tells the runtime about its vertices.
#pragma once

extern "C" {

enum HostSdkFieldKind { kState, kStateVector, kEdge, kEdgeVector, kEdgeList, kEdgeVectorList };
enum HostSdkAccess { kNone, kInput, kOutput, kInOut };
enum HostSdkLayout { kNotApplicable, kSpan, kShortSpan, kOnePtr, kCompactPtr };

struct HostSdkField {
  const char* name;
  const char* type;
  int kind;
  int access;
  int layout;       // of the vector the edge points to
  int list_layout;  // of the list of edges
  unsigned align;   // in bytes, of the data
  unsigned long offset;
};

struct HostSdkVertex {
  const char* name;
  unsigned long size;
  unsigned long align;
  int multi;
  const HostSdkField* fields;
  unsigned long field_count;
  void (*compute)(void* vertex, unsigned worker);
};

// Every edge, and every list of edges, has this layout inside a vertex.
struct HostSdkEdge {
  void* data;
  unsigned long size;
};

struct HostSdkHooks {
  unsigned workers;
  int half_saturates;
  int misaligned;
  const char* misaligned_file;
  unsigned misaligned_line;
};

// Defined by the codelet library.
const HostSdkVertex* host_sdk_vertices(unsigned long* count);
// Defined by the runtime.
HostSdkHooks* host_sdk_hooks();

}  // extern "C"
