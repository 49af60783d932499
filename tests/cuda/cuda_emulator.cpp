// The scheduler of the emulator: blocks, and their threads, which are fibers.
//
// Threads run one at a time, in an order drawn from a seed, until they wait for others: at
// __syncthreads() for the whole block, at a warp's exchange for the lanes of its mask: lanes of
// several masks may wait at a time, each of them in one exchange.  What would
// be undefined on a device is an error: a barrier that some threads never reach or reach elsewhere,
// an exchange with a lane that is gone.  Shared memory holds garbage when a block begins.
#include "cuda_emulator.hpp"

#include <ucontext.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

__thread Dimensions thread_index, block_index, block_size, grid_size;

namespace {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 << 10;

enum class State { ready, at_barrier, in_exchange, done };

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  State state;
};

struct Exchange {  // of the lanes of a mask, in one warp
  unsigned arrived = 0;
  int line = 0;
  uint64_t values[2][WARP];
  int parity = 0;  // who reads the last exchange is not disturbed by who is in the next already
};

struct Block {
  std::vector<Thread> threads;
  std::vector<std::map<unsigned, Exchange>> exchanges;  // by warp, then by mask
  unsigned waiting = 0, done = 0, current = 0;
  bool vote = false, voted = false;  // of the next barrier, and of the last
  int line = 0;
  std::string error;
  ucontext_t scheduler;
  void (*kernel)(const void *);
  const void *argument;
  Shared shared;
};

__thread Block *block;

void leave() {
  Thread &mine = block->threads[block->current];
  const unsigned me = block->current;
  const Dimensions index = thread_index;
  swapcontext(&mine.context, &block->scheduler);
  block->current = me;
  thread_index = index;
}

void fail(const std::string &what) {
  if (block->error.empty())
    block->error = what + " (block " + std::to_string(block_index.x) + ", thread " +
                   std::to_string(block->current) + ")";
  for (;;) leave();  // the scheduler stops at an error
}

uint64_t drawn(uint64_t &state) {  // splitmix64: Steele, Lea and Flood, 2014
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void shuffle(std::vector<unsigned> &turns, uint64_t &state) {
  for (size_t k = turns.size(); k > 1; k--) std::swap(turns[k - 1], turns[drawn(state) % k]);
}

void run_thread() {
  block->kernel(block->argument);
  Block &b = *block;
  b.threads[b.current].state = State::done;
  b.done++;
  if (b.waiting && b.error.empty()) b.error = "a thread returns while others wait at __syncthreads()";
  for (const auto &[mask, e] : b.exchanges[b.current / WARP])
    if (e.arrived && (mask >> b.current % WARP & 1) && b.error.empty())
      b.error = "a lane returns while others wait for its value";
  swapcontext(&b.threads[b.current].context, &b.scheduler);
}

void run_block(Block &b, uint64_t &order) {
  if (b.shared.start) memset(b.shared.start, 0xff, b.shared.stop - b.shared.start);
  block = &b;
  b.waiting = b.done = 0;
  b.vote = false;
  b.exchanges.assign((b.threads.size() + WARP - 1) / WARP, {});
  for (Thread &t : b.threads) {
    t.state = State::ready;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.get();
    t.context.uc_stack.ss_size = STACK;
    t.context.uc_link = nullptr;
    makecontext(&t.context, run_thread, 0);
  }
  std::vector<unsigned> turns(b.threads.size());
  for (unsigned k = 0; k < turns.size(); k++) turns[k] = k;
  while (b.done < b.threads.size() && b.error.empty()) {
    shuffle(turns, order);
    bool moved = false;
    for (unsigned k : turns) {
      if (b.threads[k].state != State::ready || !b.error.empty()) continue;
      moved = true;
      b.current = k;
      thread_index = {k % block_size.x, k / block_size.x % block_size.y,
                      k / (block_size.x * block_size.y)};
      swapcontext(&b.scheduler, &b.threads[k].context);
    }
    if (!moved && b.error.empty()) b.error = "threads wait for each other for ever";
  }
}

}  // namespace

void barrier(int line) {
  Block &b = *block;
  if (b.done) fail("__syncthreads() after a thread has returned");
  if (b.waiting && b.line != line) fail("threads wait at different calls of __syncthreads()");
  b.line = line;
  if (++b.waiting < b.threads.size()) {
    b.threads[b.current].state = State::at_barrier;
    leave();
    return;
  }
  b.waiting = 0;
  b.voted = b.vote;
  b.vote = false;
  for (Thread &t : b.threads)
    if (t.state == State::at_barrier) t.state = State::ready;
}

bool barrier_or(bool vote, int line) {
  block->vote |= vote;
  barrier(line);
  return block->voted;  // all threads read it before any of them gets to the next barrier's end
}

// Leaves bits for the lanes of a mask, waits for theirs, and returns those of all lanes.
static const uint64_t *all_exchanged(unsigned mask, uint64_t bits, int line) {
  Block &b = *block;
  const unsigned warp = b.current / WARP, lane = b.current % WARP;
  Exchange &e = b.exchanges[warp][mask];
  if (!(mask >> lane & 1)) fail("a lane that its own mask leaves out");
  for (unsigned l = 0; l < WARP; l++) {
    if (!(mask >> l & 1)) continue;
    if (warp * WARP + l >= b.threads.size()) fail("a mask with lanes that the block lacks");
    if (b.threads[warp * WARP + l].state == State::done) fail("a mask with a lane that has returned");
  }
  if (e.arrived && e.line != line) fail("lanes in different exchanges");
  const int parity = e.parity;
  e.line = line;
  e.arrived |= 1u << lane;
  e.values[parity][lane] = bits;
  if (e.arrived != mask) {
    b.threads[b.current].state = State::in_exchange;
    leave();
  } else {
    e.arrived = 0;
    e.parity ^= 1;
    for (unsigned l = 0; l < WARP; l++)
      if ((mask >> l & 1) && b.threads[warp * WARP + l].state == State::in_exchange)
        b.threads[warp * WARP + l].state = State::ready;
  }
  return e.values[parity];
}

uint64_t exchanged_bits(unsigned mask, uint64_t bits, unsigned other, int line) {
  if (!(mask >> other & 1)) fail("the value of a lane that the mask leaves out");
  return all_exchanged(mask, bits, line)[other];
}

unsigned ballot(unsigned mask, bool vote, int line) {
  const uint64_t *votes = all_exchanged(mask, vote, line);
  unsigned found = 0;
  for (unsigned l = 0; l < WARP; l++) found |= (unsigned)(mask >> l & votes[l] & 1) << l;
  return found;
}

unsigned lane() { return block->current % WARP; }

const char *run(void (*kernel)(const void *), const void *argument, Shared shared, unsigned blocks,
                unsigned x, unsigned y, uint64_t seed) {
  static thread_local std::string error;
  uint64_t order = seed;
  Block b;
  grid_size = {blocks, 1, 1};
  block_size = {x, y, 1};
  b.threads.resize(x * y);
  for (Thread &t : b.threads) t.stack.reset(new char[STACK]);
  b.kernel = kernel;
  b.argument = argument;
  b.shared = shared;
  std::vector<unsigned> turns(blocks);
  for (unsigned k = 0; k < blocks; k++) turns[k] = k;
  shuffle(turns, order);
  for (unsigned k : turns) {
    block_index = {k, 0, 0};
    run_block(b, order);
    if (!b.error.empty()) break;
  }
  error = b.error;
  return error.c_str();
}

}  // namespace emulator
