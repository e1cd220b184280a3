// PyTorch's caching allocator of CUDA memory, asked from Rust.
//
// Nothing here throws: each function returns a status, and of an exception its text. The counters are those of
// torch.cuda.memory_stats, which asks the same functions.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#ifdef MEMTRACK_TORCH_CUDA
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace at::cuda {
// Of libtorch_cuda.so, which registers PyTorch's kernels for CUDA when it is loaded. Nobody calls a function of it by name, so linkers
// leave it out, and PyTorch then says that it has no CUDA. Its address, which is read below, keeps it.
int warp_size();
} // namespace at::cuda
#endif

extern "C" {

// As `Status` in src/shim.rs.
enum memtrack_torch_status : int32_t {
  MEMTRACK_TORCH_OK = 0,
  MEMTRACK_TORCH_NO_CUDA = 1,
  MEMTRACK_TORCH_OUT_OF_RANGE = 2,
  MEMTRACK_TORCH_NOT_INITIALIZED = 3,
  MEMTRACK_TORCH_UNCACHED = 4,
  MEMTRACK_TORCH_THREW = 5,
};

// As `Figures` in src/shim.rs. Bytes, and counts since the program began.
struct memtrack_torch_figures {
  int64_t allocated;
  int64_t allocated_peak;
  int64_t reserved;
  int64_t reserved_peak;
  int64_t retries;
  int64_t ooms;
};
}

namespace {

void say(const char* what, char* text, size_t size) noexcept {
  if (size == 0) {
    return;
  }
  std::strncpy(text, what, size - 1);
  text[size - 1] = '\0';
}

// Runs `work`, and turns what it throws into a status with a text.
template <typename Work>
int32_t guarded(char* text, size_t size, Work work) noexcept {
  try {
    return work();
#ifdef MEMTRACK_TORCH_CUDA
  } catch (const c10::Error& error) {
    say(error.what_without_backtrace(), text, size);
#endif
  } catch (const std::exception& error) {
    say(error.what(), text, size);
  } catch (...) {
    say("an exception without a text", text, size);
  }
  return MEMTRACK_TORCH_THREW;
}

#ifdef MEMTRACK_TORCH_CUDA

namespace caching = c10::cuda::CUDACachingAllocator;

int (*volatile of_libtorch_cuda)() = &at::cuda::warp_size;

// With this variable PyTorch asks the driver for each tensor, and counts nothing.
bool is_uncached() {
  static const bool by_variable = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr;
  return by_variable || !caching::isEnabled();
}

// Whether the allocator can be asked about a device.
int32_t readiness(int32_t device) {
  (void)of_libtorch_cuda;
  const auto count = static_cast<int32_t>(c10::cuda::device_count());
  if (count == 0) {
    return MEMTRACK_TORCH_NO_CUDA;
  }
  if (device < 0 || device >= count) {
    return MEMTRACK_TORCH_OUT_OF_RANGE;
  }
  return caching::get()->initialized() ? MEMTRACK_TORCH_OK : MEMTRACK_TORCH_NOT_INITIALIZED;
}

#endif

} // namespace

extern "C" {

#ifdef MEMTRACK_TORCH_CUDA

int32_t memtrack_torch_device_count() noexcept {
  (void)of_libtorch_cuda;
  return static_cast<int32_t>(c10::cuda::device_count());
}

int32_t memtrack_torch_initialize(char* text, size_t size) noexcept {
  return guarded(text, size, [] {
    if (c10::cuda::device_count() == 0) {
      return MEMTRACK_TORCH_NO_CUDA;
    }
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    return MEMTRACK_TORCH_OK;
  });
}

// The allocator's own name for itself into `text`: "native", "cudaMallocAsync" or "pluggable".
int32_t memtrack_torch_backend(char* text, size_t size) noexcept {
  return guarded(text, size, [&] {
    say(caching::name().c_str(), text, size);
    return MEMTRACK_TORCH_OK;
  });
}

int32_t memtrack_torch_read(int32_t device, memtrack_torch_figures* figures, char* text, size_t size) noexcept {
  return guarded(text, size, [&]() -> int32_t {
    if (const int32_t status = readiness(device); status != MEMTRACK_TORCH_OK) {
      return status;
    }
    if (is_uncached()) {
      return MEMTRACK_TORCH_UNCACHED;
    }
    const auto stats = caching::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    figures->allocated = stats.allocated_bytes[all].current;
    figures->allocated_peak = stats.allocated_bytes[all].peak;
    figures->reserved = stats.reserved_bytes[all].current;
    figures->reserved_peak = stats.reserved_bytes[all].peak;
    figures->retries = stats.num_alloc_retries;
    figures->ooms = stats.num_ooms;
    return MEMTRACK_TORCH_OK;
  });
}

int32_t memtrack_torch_reset_peak(int32_t device, char* text, size_t size) noexcept {
  return guarded(text, size, [&]() -> int32_t {
    const int32_t status = readiness(device);
    if (status == MEMTRACK_TORCH_OK) {
      caching::resetPeakStats(static_cast<c10::DeviceIndex>(device));
    }
    return status;
  });
}

int32_t memtrack_torch_empty_cache(char* text, size_t size) noexcept {
  return guarded(text, size, []() -> int32_t {
    const int32_t status = readiness(0);
    if (status == MEMTRACK_TORCH_OK) {
      caching::emptyCache();
    }
    return status;
  });
}

#else

// libtorch for the CPU has no such allocator.
int32_t memtrack_torch_device_count() noexcept {
  return 0;
}

int32_t memtrack_torch_initialize(char*, size_t) noexcept {
  return MEMTRACK_TORCH_NO_CUDA;
}

int32_t memtrack_torch_backend(char*, size_t) noexcept {
  return MEMTRACK_TORCH_NO_CUDA;
}

int32_t memtrack_torch_read(int32_t, memtrack_torch_figures*, char*, size_t) noexcept {
  return MEMTRACK_TORCH_NO_CUDA;
}

int32_t memtrack_torch_reset_peak(int32_t, char*, size_t) noexcept {
  return MEMTRACK_TORCH_NO_CUDA;
}

int32_t memtrack_torch_empty_cache(char*, size_t) noexcept {
  return MEMTRACK_TORCH_NO_CUDA;
}

#endif

} // extern "C"
