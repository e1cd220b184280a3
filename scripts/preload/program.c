/* A program that knows nothing of memtrack: allocates, writes, reads back and frees on a GPU, checks every byte, and times the calls.
 * It prints how often it called what, as `calls NAME DONE FAILED`, for scripts/preload-check to compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long address;
typedef void *stream;

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address);
int cuMemAllocAsync(address *, size_t, stream), cuMemFreeAsync(address, stream);
int cuMemsetD8Async(address, unsigned char, size_t, stream), cuMemcpyDtoHAsync_v2(void *, address, size_t, stream);
int cuMemcpyDtoDAsync_v2(address, address, size_t, stream);
int cuStreamCreate(stream *, unsigned), cuStreamSynchronize(stream), cuStreamDestroy_v2(stream);

#define OUT_OF_MEMORY 2
enum { ALLOC, ALLOC_ASYNC, FREE, FREE_ASYNC, KINDS };
static const char *names[KINDS] = {"cuMemAlloc", "cuMemAllocAsync", "cuMemFree", "cuMemFreeAsync"};
static unsigned long long done[KINDS], failed[KINDS];

static int count(int kind, int answer) {
    ++*(answer ? &failed[kind] : &done[kind]);
    return answer;
}

static void check(const char *what, int answer) {
    if (answer) {
        printf("FAILED: %s answered %d\n", what, answer);
        exit(1);
    }
}
#define CHECK(call) check(#call, call)
#define ALLOCATE(place, bytes) count(ALLOC, cuMemAlloc_v2(place, bytes))
#define ALLOCATE_ON(place, bytes, on) count(ALLOC_ASYNC, cuMemAllocAsync(place, bytes, on))
#define RELEASE(given) count(FREE, cuMemFree_v2(given))
#define RELEASE_ON(given, on) count(FREE_ASYNC, cuMemFreeAsync(given, on))

#define LARGEST (8u << 20)
static unsigned char bytes[LARGEST];

/* Rounds on two streams; a block is written on one and freed there, on the other behind its work, or by the call that waits. */
static void contents(stream *streams) {
    unsigned seed = 1;
    for (int round = 0; round < 500; round++) {
        seed = seed * 1664525 + 1013904223;
        size_t size = 1 + seed % LARGEST;
        stream on = streams[round % 2], other = streams[(round + 1) % 2];
        address source, target;
        if (round % 3) CHECK(ALLOCATE_ON(&source, size, on));
        else CHECK(ALLOCATE(&source, size));
        CHECK(ALLOCATE_ON(&target, size, on));
        CHECK(cuMemsetD8Async(source, (unsigned char)round, size, on));
        CHECK(cuMemcpyDtoDAsync_v2(target, source, size, on));
        if (round % 4 == 0 || round % 3 == 0) {
            /* The copy may still be under way: the free waits. */
            CHECK(RELEASE(source));
        } else if (round % 4 == 1) {
            CHECK(cuStreamSynchronize(on));
            CHECK(RELEASE_ON(source, other));
        } else {
            CHECK(RELEASE_ON(source, on));
        }
        /* What is given out now must not be what the copy still reads. */
        address next;
        CHECK(ALLOCATE_ON(&next, size, other));
        CHECK(cuMemsetD8Async(next, 0xee, size, other));
        memset(bytes, 0, size);
        CHECK(cuMemcpyDtoHAsync_v2(bytes, target, size, on));
        CHECK(cuStreamSynchronize(on));
        for (size_t i = 0; i < size; i++) {
            if (bytes[i] != (unsigned char)round) {
                printf("FAILED: round %d: byte %zu is %d\n", round, i, bytes[i]);
                exit(1);
            }
        }
        CHECK(RELEASE_ON(next, other));
        CHECK(RELEASE_ON(target, on));
    }
    printf("contents of 500 rounds are right\n");
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void times(stream on) {
    const size_t sizes[] = {4096, 2 << 20, 64 << 20};
    for (int i = 0; i < 3; i++) {
        int rounds = 20000;
        double least = 1e18;
        for (int turn = 0; turn < 5; turn++) {
            double begun = now();
            for (int round = 0; round < rounds; round++) {
                address given;
                CHECK(ALLOCATE_ON(&given, sizes[i], on));
                CHECK(RELEASE_ON(given, on));
            }
            double took = (now() - begun) / rounds;
            if (took < least) least = took;
        }
        printf("cuMemAllocAsync and cuMemFreeAsync of %9zu bytes: %9.0f ns\n", sizes[i], least);
    }
    for (int i = 0; i < 3; i++) {
        int rounds = 200;
        double least = 1e18;
        for (int turn = 0; turn < 5; turn++) {
            double begun = now();
            for (int round = 0; round < rounds; round++) {
                address given;
                CHECK(ALLOCATE(&given, sizes[i]));
                CHECK(RELEASE(given));
            }
            double took = (now() - begun) / rounds;
            if (took < least) least = took;
        }
        printf("cuMemAlloc and cuMemFree           of %9zu bytes: %9.0f ns\n", sizes[i], least);
    }
}

static void edges(stream on) {
    address given = 1;
    int answer = ALLOCATE_ON(&given, 0, on);
    printf("cuMemAllocAsync of no bytes: %d, address %llx\n", answer, given);
    answer = ALLOCATE(&given, 0);
    printf("cuMemAlloc of no bytes: %d\n", answer);
    if (ALLOCATE(&given, (size_t)1 << 44) != OUT_OF_MEMORY || ALLOCATE_ON(&given, (size_t)1 << 44, on) != OUT_OF_MEMORY) {
        printf("FAILED: 16 TiB are not refused for want of memory\n");
        exit(1);
    }
    CHECK(ALLOCATE(&given, 1 << 20));
    CHECK(RELEASE(given));
    printf("a second free of an address: %d\n", RELEASE(given));
    printf("a free of no address: %d\n", RELEASE(0));
}

int main(void) {
    void *context;
    stream streams[2];
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&streams[0], 1));
    CHECK(cuStreamCreate(&streams[1], 1));
    contents(streams);
    times(streams[0]);
    edges(streams[0]);
    CHECK(cuStreamDestroy_v2(streams[1]));
    CHECK(cuStreamCreate(&streams[1], 1));
    contents(streams);
    CHECK(cuCtxSynchronize());
    for (int kind = 0; kind < KINDS; kind++) printf("calls %s %llu %llu\n", names[kind], done[kind], failed[kind]);
    return 0;
}
