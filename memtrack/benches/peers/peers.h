// The allocators that the harness drives, behind one interface. Which of them are there is decided by -DPEER_…; with
// -DPEER_SIMULATED it is memtrack alone, on its simulated device and without CUDA.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#ifdef PEER_SIMULATED
#include "no_cuda.h"
#else
#include <cuda_runtime.h>
#endif
#ifdef PEER_MEMTRACK
#include "memtrack_peers.h"
#endif
#ifdef PEER_TORCH
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#ifdef PEER_RMM
#include <cuda/stream_ref>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#endif

#define CHECK_CUDA(call)                                                   \
  do {                                                                     \
    cudaError_t error = (call);                                            \
    if (error != cudaSuccess) {                                            \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));       \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

struct Peer {
  virtual ~Peer() = default;
  virtual void* allocate(size_t bytes, cudaStream_t stream) = 0;
  virtual void free(void* address, size_t bytes, cudaStream_t stream) = 0;
  // A stream to allocate on, never destroyed.
  virtual cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  // Makes the allocator as good as new: nothing cached, nothing remembered. Nothing is allocated then.
  virtual void renew() {}
  // What surrounds the steps of a thread, where the allocator has such a thing; leave says how many allocations it counted.
  virtual void* enter() { return nullptr; }
  virtual long long leave(void*) { return 0; }
  // The most bytes taken from the device since the last renewal, -1 where the allocator does not say.
  virtual double reserved_peak() { return -1; }
  // Pages moved so far, -1 where the allocator moves none.
  virtual double moved_pages() { return -1; }
  // Whether freed memory is kept: without that the steps that need many calls are left out.
  virtual bool caches() { return true; }
};

#ifndef PEER_SIMULATED
// cudaMalloc and cudaFree each time.
struct Uncached : Peer {
  void* allocate(size_t bytes, cudaStream_t) override {
    void* address;
    CHECK_CUDA(cudaMalloc(&address, bytes));
    return address;
  }
  void free(void* address, size_t, cudaStream_t) override { CHECK_CUDA(cudaFree(address)); }
  bool caches() override { return false; }
};

// The driver's own pool, told to keep everything.
struct Async : Peer {
  cudaMemPool_t pool;
  Async() {
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    uint64_t all = UINT64_MAX;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
  }
  void* allocate(size_t bytes, cudaStream_t stream) override {
    void* address;
    CHECK_CUDA(cudaMallocAsync(&address, bytes, stream));
    return address;
  }
  void free(void* address, size_t, cudaStream_t stream) override { CHECK_CUDA(cudaFreeAsync(address, stream)); }
  void renew() override {
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemPoolTrimTo(pool, 0));
    uint64_t zero = 0;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero));
  }
  double reserved_peak() override {
    uint64_t bytes;
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &bytes));
    return double(bytes);
  }
};
#endif

#ifdef PEER_MEMTRACK
// memtrack by bare addresses: each free looks its address up, as PyTorch's does.
struct Memtrack : Peer {
  memtrack_peer* peer = nullptr;
  explicit Memtrack(const char* name) { check(memtrack_peers_open(name, &peer)); }
  ~Memtrack() override { memtrack_peers_close(peer); }
  static void check(int code) {
    if (code != MEMTRACK_PEERS_DONE) {
      fprintf(stderr, "memtrack, code %d: %s\n", code, memtrack_peers_message());
      exit(1);
    }
  }
  void* allocate(size_t bytes, cudaStream_t stream) override {
    uint64_t address;
    check(memtrack_peers_allocate(peer, bytes, reinterpret_cast<uint64_t>(stream), &address));
    return reinterpret_cast<void*>(address);
  }
  void free(void* address, size_t, cudaStream_t) override {
    check(memtrack_peers_free(peer, reinterpret_cast<uint64_t>(address)));
  }
  cudaStream_t new_stream() override {
    uint64_t stream;
    check(memtrack_peers_new_stream(peer, &stream));
    return reinterpret_cast<cudaStream_t>(stream);
  }
  void renew() override { check(memtrack_peers_renew(peer)); }
  void* enter() override { return memtrack_peers_enter(peer); }
  long long leave(void* scope) override { return memtrack_peers_leave(static_cast<memtrack_scope*>(scope)); }
  double reserved_peak() override { return double(memtrack_peers_reserved_peak(peer)); }
  double moved_pages() override { return double(memtrack_peers_moved_pages(peer)); }
};
#endif

#ifdef PEER_TORCH
// PyTorch's, configured by PYTORCH_CUDA_ALLOC_CONF.
struct Torch : Peer {
  Torch() { c10::cuda::CUDACachingAllocator::init(1); }
  void* allocate(size_t bytes, cudaStream_t stream) override {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
  }
  void free(void* address, size_t, cudaStream_t) override { c10::cuda::CUDACachingAllocator::raw_delete(address); }
  void renew() override {
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  }
  double reserved_peak() override {
    return double(c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].peak);
  }
};
#endif

#ifdef PEER_RMM
// RMM's, over cudaMalloc. They keep what they have until their end, so a new one is made where the cache is to be empty.
template <class Resource>
struct Rmm : Peer {
  std::unique_ptr<Resource> resource;
  std::unique_ptr<Resource> (*make)();
  double (*size)(const Resource&);
  Rmm(std::unique_ptr<Resource> (*make)(), double (*size)(const Resource&)) : resource(make()), make(make), size(size) {}
  void* allocate(size_t bytes, cudaStream_t stream) override {
    return resource->allocate(cuda::stream_ref(stream), bytes, 256);
  }
  void free(void* address, size_t bytes, cudaStream_t stream) override {
    resource->deallocate(cuda::stream_ref(stream), address, bytes, 256);
  }
  void renew() override {
    CHECK_CUDA(cudaDeviceSynchronize());
    resource.reset();
    resource = make();
  }
  double reserved_peak() override { return size(*resource); }
};
#endif

// The peer of this name, null when this build has none.
inline std::unique_ptr<Peer> make_peer(const std::string& name) {
#ifndef PEER_SIMULATED
  if (name == "uncached") return std::make_unique<Uncached>();
  if (name == "async") return std::make_unique<Async>();
#endif
#ifdef PEER_MEMTRACK
  if (name.rfind("memtrack", 0) == 0) return std::make_unique<Memtrack>(name.c_str());
#endif
#ifdef PEER_TORCH
  if (name == "torch" || name == "torch_expandable") return std::make_unique<Torch>();
#endif
#ifdef PEER_RMM
  if (name == "rmm_pool") {
    using Pool = rmm::mr::pool_memory_resource;
    return std::make_unique<Rmm<Pool>>([] { return std::make_unique<Pool>(rmm::mr::cuda_memory_resource{}, 0); },
                                       [](const Pool& pool) { return double(pool.pool_size()); });
  }
  if (name == "rmm_arena") {
    using Arena = rmm::mr::arena_memory_resource;
    // It takes half of the free memory at once, and does not say how much of that was needed.
    return std::make_unique<Rmm<Arena>>([] { return std::make_unique<Arena>(rmm::mr::cuda_memory_resource{}); },
                                        [](const Arena&) { return -1.0; });
  }
#endif
  return nullptr;
}
