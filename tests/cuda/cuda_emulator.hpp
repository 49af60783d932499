// Runs CUDA C++ on the CPU, for tests: included before a kernel's unmodified text, which is linked
// with cuda_emulator.cpp.  Kernels are many, so little is included here.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("shared_memory")))

extern "C" {
extern char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));
}

namespace emulator {

struct Dimensions { unsigned x, y, z; };

extern __thread Dimensions thread_index, block_index, block_size, grid_size;

unsigned lane();
void barrier(int line);
bool barrier_or(bool vote, int line);
uint64_t exchanged_bits(unsigned mask, uint64_t bits, unsigned other, int line);
unsigned ballot(unsigned mask, bool vote, int line);

// Leaves a value for the lanes of a mask, waits for theirs, and returns that of another lane.
template <class T> inline T exchanged(unsigned mask, T value, unsigned other, int line) {
  static_assert(sizeof value <= sizeof(uint64_t), "no more than 64 bits");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = exchanged_bits(mask, bits, other, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}

struct Shared { char *start, *stop; };

// Runs a grid of blocks, in an order drawn from the seed; returns an error or "".
const char *run(void (*kernel)(const void *), const void *argument, Shared shared, unsigned blocks,
                unsigned x, unsigned y, uint64_t seed);

}  // namespace emulator

#define threadIdx (emulator::thread_index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)
#define __cvta_global_to_generic(address) ((void *)(address))
#define __syncthreads() emulator::barrier(__LINE__)
#define __syncthreads_or(vote) emulator::barrier_or(vote, __LINE__)
#define __shfl_xor_sync(mask, value, apart) \
  emulator::exchanged(mask, value, emulator::lane() ^ (apart), __LINE__)
#define __ballot_sync(mask, vote) emulator::ballot(mask, vote, __LINE__)
#define __syncwarp(mask) ((void)emulator::ballot(mask, true, __LINE__))
#define __popc(bits) __builtin_popcount(bits)

// After the text, one for each kernel: a function for the host to call.
#define EMULATED(entry)                                                                           \
  extern "C" const char *run_##entry(const Arguments *a, unsigned blocks, unsigned x, unsigned y, \
                                     uint64_t seed) {                                             \
    return emulator::run([](const void *p) { entry(*(const Arguments *)p); }, a,                  \
                         {__start_shared_memory, __stop_shared_memory}, blocks, x, y, seed);      \
  }
