// As much of CUDA's runtime as the harness calls itself, for memtrack on its simulated device: it is always done.
#pragma once
#include <cstddef>

typedef void* cudaStream_t;
enum cudaError_t { cudaSuccess = 0 };
enum { cudaStreamNonBlocking = 1 };
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaFree(void*) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
