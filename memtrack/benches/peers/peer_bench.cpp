// One harness, several GPU allocators: peer_bench PEER STEPS TRACE..., with some of pair,churn,threads,replay as STEPS.
//
// Prints a JSON object a line: the cost of a cached pair of allocation and free (`pair`), of replacing one of 4096 live
// blocks (`churn`), of pairs on several threads (`threads`), of the allocations of recorded training runs (`replay`), and how
// long each of these parts took (`part`). `owned` is how many allocations were booked to the scopes that were open.
// src/bin/peer_buffers.rs takes the same steps in Rust: change both together.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "peers.h"

using Clock = std::chrono::steady_clock;

static double nanoseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// SplitMix64, so that both programs draw the same numbers.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // From 512 bytes to 16 MiB, evenly over the powers of two.
  size_t size() {
    uint64_t power = next() % 15;
    return size_t(512 + next() % 512) << power;
  }
};

struct Block {
  void* address = nullptr;
  size_t bytes = 0;
};

static void pairs(Peer& peer, const char* name) {
  const int rounds = 7, count = peer.caches() ? 20000 : 100;
  for (size_t bytes : {size_t(512), size_t(64) << 10, size_t(4) << 20, size_t(100) << 20}) {
    peer.free(peer.allocate(bytes, nullptr), bytes, nullptr);
    std::vector<double> times;
    void* scope = peer.enter();
    for (int round = 0; round < rounds; round++) {
      auto begin = Clock::now();
      for (int i = 0; i < count; i++) peer.free(peer.allocate(bytes, nullptr), bytes, nullptr);
      times.push_back(nanoseconds_since(begin) / count);
    }
    long long owned = peer.leave(scope);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::sort(times.begin(), times.end());
    printf("{\"peer\":\"%s\",\"bench\":\"pair\",\"bytes\":%zu,\"owned\":%lld,\"ns\":%.1f}\n", name, bytes, owned,
           times[rounds / 2]);
  }
}

static void churn(Peer& peer, const char* name) {
  const size_t count = 100000;
  Random random{1};
  void* scope = peer.enter();
  std::vector<Block> live(4096);
  for (auto& block : live) {
    block.bytes = random.size();
    block.address = peer.allocate(block.bytes, nullptr);
  }
  std::vector<std::pair<size_t, size_t>> steps(count);
  for (auto& [place, bytes] : steps) {
    place = random.next() % live.size();
    bytes = random.size();
  }
  double ns = 0;
  // The last pass counts, when all segments are there.
  for (int pass = 0; pass < 3; pass++) {
    auto begin = Clock::now();
    for (auto [place, bytes] : steps) {
      Block& block = live[place];
      peer.free(block.address, block.bytes, nullptr);
      block = {peer.allocate(bytes, nullptr), bytes};
    }
    ns = nanoseconds_since(begin) / count;
  }
  for (auto& block : live) peer.free(block.address, block.bytes, nullptr);
  long long owned = peer.leave(scope);
  CHECK_CUDA(cudaDeviceSynchronize());
  printf("{\"peer\":\"%s\",\"bench\":\"churn\",\"owned\":%lld,\"ns\":%.1f}\n", name, owned, ns);
}

static void threads(Peer& peer, const char* name) {
  const size_t bytes = 64 << 10, total = 64000;
  for (size_t number : {1, 2, 4, 8, 16}) {
    const size_t count = total / number;
    std::vector<cudaStream_t> streams(number);
    for (auto& stream : streams) {
      stream = peer.new_stream();
      peer.free(peer.allocate(bytes, stream), bytes, stream);
    }
    std::vector<std::thread> workers;
    std::atomic<long long> owned{0};
    auto begin = Clock::now();
    for (auto stream : streams)
      workers.emplace_back([&peer, &owned, stream, count] {
        CHECK_CUDA(cudaSetDevice(0));
        void* scope = peer.enter();
        for (size_t i = 0; i < count; i++) peer.free(peer.allocate(bytes, stream), bytes, stream);
        owned += peer.leave(scope);
      });
    for (auto& worker : workers) worker.join();
    double ns = nanoseconds_since(begin) / double(count * number);
    CHECK_CUDA(cudaDeviceSynchronize());
    printf("{\"peer\":\"%s\",\"bench\":\"threads\",\"threads\":%zu,\"owned\":%lld,\"ns\":%.1f}\n", name, number,
           owned.load(), ns);
  }
}

// One `a` or `f` line of a trace.
struct Step {
  bool allocates;
  size_t block;
  size_t bytes;
  size_t stream;
};

struct Trace {
  std::vector<Step> steps;
  size_t block_count = 0, stream_count = 0;
  // The most bytes asked for at a time.
  size_t requested_peak = 0;
};

static Trace read_trace(const char* path) {
  std::ifstream file(path);
  if (!file) {
    fprintf(stderr, "%s cannot be read\n", path);
    exit(1);
  }
  Trace trace;
  std::map<unsigned long long, size_t> streams{{0, 0}};
  std::map<unsigned long long, Step> live;
  size_t requested = 0;
  for (std::string line; std::getline(file, line);) {
    unsigned long long id, bytes, stream;
    if (sscanf(line.c_str(), "a %llu %llu %llu", &id, &bytes, &stream) == 3) {
      size_t place = streams.emplace(stream, streams.size()).first->second;
      Step step{true, size_t(id), std::max<size_t>(bytes, 1), place};
      live[id] = step;
      trace.steps.push_back(step);
      trace.block_count = std::max(trace.block_count, size_t(id) + 1);
      requested += step.bytes;
      trace.requested_peak = std::max(trace.requested_peak, requested);
    } else if (line[0] == 'f' && sscanf(line.c_str(), "f %llu", &id) == 1 && live.count(id)) {
      Step step = live[id];
      live.erase(id);
      step.allocates = false;
      requested -= step.bytes;
      trace.steps.push_back(step);
    }
  }
  // What the run still held goes too, so that each pass begins with nothing allocated.
  for (auto& [id, step] : live) {
    step.allocates = false;
    trace.steps.push_back(step);
  }
  trace.stream_count = streams.size();
  return trace;
}

static void replay(Peer& peer, const char* name, const char* path) {
  Trace trace = read_trace(path);
  std::vector<cudaStream_t> streams(trace.stream_count, nullptr);
  for (size_t i = 1; i < streams.size(); i++) streams[i] = peer.new_stream();
  std::vector<void*> addresses(trace.block_count, nullptr);
  peer.renew();
  double cold = 0, warm = 1e300, reserved_peak = 0, moved_cold = 0;
  const int passes = peer.caches() ? 5 : 1;
  void* scope = peer.enter();
  for (int pass = 0; pass < passes; pass++) {
    auto begin = Clock::now();
    for (const Step& step : trace.steps) {
      void*& address = addresses[step.block];
      if (step.allocates)
        address = peer.allocate(step.bytes, streams[step.stream]);
      else
        peer.free(address, step.bytes, streams[step.stream]);
    }
    double ns = nanoseconds_since(begin);
    CHECK_CUDA(cudaDeviceSynchronize());
    if (pass == 0) {
      cold = ns;
      reserved_peak = peer.reserved_peak();
      moved_cold = peer.moved_pages();
    } else {
      warm = std::min(warm, ns);
    }
  }
  double moved_warm = moved_cold < 0 ? -1 : (peer.moved_pages() - moved_cold) / std::max(passes - 1, 1);
  long long owned = peer.leave(scope);
  if (passes == 1) warm = cold;
  const char* slash = strrchr(path, '/');
  printf("{\"peer\":\"%s\",\"bench\":\"replay\",\"trace\":\"%s\",\"steps\":%zu,\"requested_peak\":%zu,\"reserved_peak\":%.0f,"
         "\"moved_cold\":%.0f,\"moved_warm\":%.1f,\"owned\":%lld,\"cold_ms\":%.2f,\"ns\":%.1f}\n",
         name, slash ? slash + 1 : path, trace.steps.size(), trace.requested_peak, reserved_peak, moved_cold, moved_warm, owned, cold / 1e6,
         warm / double(trace.steps.size()));
}

// Whether a list of words with commas between them has this word.
static bool has(const char* list, const char* word) {
  return ("," + std::string(list) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

template <class Steps>
static void timed(const char* name, const char* part, Steps steps) {
  auto begin = Clock::now();
  steps();
  printf("{\"peer\":\"%s\",\"bench\":\"part\",\"part\":\"%s\",\"seconds\":%.2f}\n", name, part, nanoseconds_since(begin) / 1e9);
  fflush(stdout);
}

int main(int count, char** arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: peer_bench PEER STEPS TRACE..., with some of pair,churn,threads,replay as STEPS\n");
    return 2;
  }
  const char *name = arguments[1], *steps = arguments[2];
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaFree(nullptr));
  std::unique_ptr<Peer> peer = make_peer(name);
  if (!peer) {
    fprintf(stderr, "this build has no peer %s\n", name);
    return 2;
  }
  if (has(steps, "pair")) timed(name, "pair", [&] { pairs(*peer, name); });
  if (has(steps, "churn") && peer->caches()) timed(name, "churn", [&] { churn(*peer, name); });
  if (has(steps, "threads") && peer->caches()) timed(name, "threads", [&] { threads(*peer, name); });
  if (has(steps, "replay"))
    timed(name, "replay", [&] {
      for (int i = 3; i < count; i++) replay(*peer, name, arguments[i]);
    });
  return 0;
}
