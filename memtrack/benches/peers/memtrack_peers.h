// memtrack's allocator on the first GPU, for programs in C and C++. Built by `cargo build -p memtrack-peers` as
// libmemtrack_peers.so. All functions but open, close and renew may be called from any thread at any time.
#ifndef MEMTRACK_PEERS_H
#define MEMTRACK_PEERS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct memtrack_peer memtrack_peer;
typedef struct memtrack_scope memtrack_scope;

enum {
  MEMTRACK_PEERS_DONE = 0,
  MEMTRACK_PEERS_OUT_OF_MEMORY = 1,
  MEMTRACK_PEERS_INVALID = 2,  // an unknown name, or an address that was not allocated
  MEMTRACK_PEERS_DEVICE = 3,   // the GPU or its driver
};

// What the last call on this thread that failed has to say. Good until the next one that fails.
const char* memtrack_peers_message(void);

// `name` is a peer's, such as memtrack_compact: src/setup.rs says what they mean. MEMTRACK_PEERS_DEVICE=simulated in the
// environment puts a device without bytes in the GPU's place.
int memtrack_peers_open(const char* name, memtrack_peer** peer);
void memtrack_peers_close(memtrack_peer* peer);

// Puts a new allocator in the old one's place. Nothing may be allocated, no scope be open, no other thread be at it.
int memtrack_peers_renew(memtrack_peer* peer);

// A stream that waits for no other, as the driver's handle. It lives as long as the device; stream 0 is always there.
int memtrack_peers_new_stream(const memtrack_peer* peer, uint64_t* stream);

// Opens a scope with a phase on this thread, to which what the thread allocates is booked; null for peers without scopes.
memtrack_scope* memtrack_peers_enter(const memtrack_peer* peer);
// Closes it, on the thread that opened it. The allocations that were booked to it, 0 for null.
int64_t memtrack_peers_leave(memtrack_scope* scope);

int memtrack_peers_allocate(const memtrack_peer* peer, uint64_t bytes, uint64_t stream, uint64_t* address);
int memtrack_peers_free(const memtrack_peer* peer, uint64_t address);

// The most bytes taken from the device since the allocator was opened or renewed.
int64_t memtrack_peers_reserved_peak(const memtrack_peer* peer);
// Pages moved so far, -1 where the policy moves none.
int64_t memtrack_peers_moved_pages(const memtrack_peer* peer);

#ifdef __cplusplus
}
#endif
#endif
