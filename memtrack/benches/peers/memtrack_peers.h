// memtrack's allocator on the first GPU, for programs in C and C++. Built by `cargo build -p memtrack-peers` as
// libmemtrack_peers.so. All functions but open and close may be called from any thread at any time.
#ifndef MEMTRACK_PEERS_H
#define MEMTRACK_PEERS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct memtrack_peer memtrack_peer;

enum {
  MEMTRACK_PEERS_DONE = 0,
  MEMTRACK_PEERS_OUT_OF_MEMORY = 1,
  MEMTRACK_PEERS_INVALID = 2,  // a malformed text, or an address that was not allocated
  MEMTRACK_PEERS_DEVICE = 3,   // the GPU or its driver
};

// What the last call on this thread that failed has to say. Good until the next one that fails.
const char* memtrack_peers_message(void);

// `configuration` is in the grammar of MEMTRACK_ALLOC_CONF.
int memtrack_peers_open(const char* configuration, memtrack_peer** peer);
void memtrack_peers_close(memtrack_peer* peer);

// A stream that waits for no other, as the driver's handle. It lives as long as the allocator; stream 0 is always there.
int memtrack_peers_new_stream(const memtrack_peer* peer, uint64_t* stream);

int memtrack_peers_allocate(const memtrack_peer* peer, uint64_t bytes, uint64_t stream, uint64_t* address);
int memtrack_peers_free(const memtrack_peer* peer, uint64_t address);

// Gives cached memory back to the device.
int memtrack_peers_trim(const memtrack_peer* peer);

// The most bytes taken from the device since the last reset.
int64_t memtrack_peers_reserved_peak(const memtrack_peer* peer);
void memtrack_peers_reset_peaks(const memtrack_peer* peer);

#ifdef __cplusplus
}
#endif
#endif
