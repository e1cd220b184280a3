// What programs do at odd times. The first argument says which.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(address *, int), cuCtxSetCurrent(address), cuDevicePrimaryCtxReset_v2(int);
int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address);
int cuMemAllocAsync(address *, size_t, address), cuMemFreeAsync(address, address);
int cuStreamCreate(address *, unsigned), cuStreamDestroy_v2(address);
int cuStreamBeginCapture_v2(address, int), cuStreamEndCapture(address, address *), cuStreamWaitEvent(address, address, unsigned);
int cuEventCreate(address *, unsigned), cuEventRecord(address, address), cuMemsetD8Async(address, unsigned char, size_t, address);
int mock_hold_stream(size_t, address), mock_let_stream_go(size_t, address);
address mock_calls(const char *);
#define CHECK(call) do { int answer = call; if (answer) { printf("%s: %d\n", #call, answer); fflush(stdout); _exit(1); } } while (0)
#define MIB ((size_t)1 << 20)

static address context;

static void begin(void) {
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
}

static address take(size_t bytes) {
    address given;
    CHECK(cuMemAlloc_v2(&given, bytes));
    return given;
}

static void at_end(void) { printf("handler=1\n"); }

static void *last(void *unused) {
    CHECK(cuCtxSetCurrent(context));
    address given = take(MIB);
    usleep(50000);
    CHECK(cuMemFree_v2(given));
    return unused;
}

static void main_thread_ends(void) {
    pthread_t thread;
    take(2 * MIB);
    atexit(at_end);
    pthread_create(&thread, 0, last, 0);
    pthread_exit(0);
}

static void capture_ends(int how) {
    address stream, other, event, graph = 0, given = how == 4 ? 0 : take(MIB);
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuStreamCreate(&other, 1));
    CHECK(cuStreamBeginCapture_v2(stream, 2));
    if (how == 0) CHECK(cuStreamDestroy_v2(stream));
    if (how == 1) {
        CHECK(cuMemsetD8Async(given, 1, 100, stream));
        CHECK(cuEventCreate(&event, 2));
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(other, event, 0));
        CHECK(cuMemsetD8Async(given, 1, 100, other));
        if (cuStreamEndCapture(stream, &graph) != 904) _exit(2);
    }
    if (how == 2) CHECK(cuStreamEndCapture(stream, &graph));
    if (how == 3 || how == 4) {
        CHECK(cuDevicePrimaryCtxReset_v2(0));
        begin();
    }
    for (int round = 0; round < 20; round++) CHECK(cuMemFree_v2(take(20 * MIB)));
}

static void reset(void) {
    take(30 * MIB);
    CHECK(cuDevicePrimaryCtxReset_v2(0));
}

static void opens_a_library(const char *path) {
    time_t before = time(0);
    if (!dlopen(path, RTLD_NOW)) { printf("%s\n", dlerror()); _exit(1); }
    printf("seconds=%d\n", (int)(time(0) - before));
}

static void ends(int unused) { exit(0); }

static void ends_within(void) {
    struct itimerval soon = {{0, 0}, {0, 100000}};
    signal(SIGALRM, ends);
    setitimer(ITIMER_REAL, &soon, 0);
    for (size_t round = 0;; round++) {
        address given;
        CHECK(cuMemAllocAsync(&given, 1 + round * 7919 % (3 * MIB), 0));
        CHECK(cuMemFreeAsync(given, 0));
    }
}

static void closes_standard_error(const char *path) {
    take(MIB);
    close(2);
    if (open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644) != 2) _exit(1);
    if (write(2, "DATA", 4) != 4) _exit(1);
}

static void redirects_standard_error(const char *path) {
    take(MIB);
    int log = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    dup2(log, 1);
    dup2(log, 2);
}

static void *waits(void *given) {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree_v2(*(address *)given));
    return 0;
}

static void frees_beside(void) {
    pthread_t thread;
    address first = take(100 * MIB), stream;
    CHECK(cuStreamCreate(&stream, 1));
    mock_hold_stream(0, stream);
    CHECK(cuMemsetD8Async(first, 1, MIB, stream));
    pthread_create(&thread, 0, waits, &first);
    while (!mock_calls("cuMemFree_v2")) usleep(1000);
    address second = take(100 * MIB);
    mock_let_stream_go(0, stream);
    pthread_join(thread, 0);
    CHECK(cuMemFree_v2(second));
}

static void writes_the_run_file(void) {
    int file = open(getenv("MEMTRACK_RUN_FILE"), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (flock(file, LOCK_EX) || write(file, "{\"mine\":1}\n", 11) != 11) _exit(1);
    take(MIB);
}

static void lingers(void) { usleep(2500000); }

int main(int count, char **arguments) {
    const char *scene = arguments[1], *path = count > 2 ? arguments[2] : "";
    if (!strcmp(scene, "opens-a-library")) { opens_a_library(path); return 0; }
    if (!strcmp(scene, "clears-the-environment")) clearenv();
    printf("buffered=1\n");
    // Before memtrack's own, so it comes after that.
    if (!strcmp(scene, "lingers")) atexit(lingers);
    begin();
    if (!strcmp(scene, "main-thread-ends")) main_thread_ends();
    if (!strcmp(scene, "capture-ends")) capture_ends(atoi(path));
    if (!strcmp(scene, "reset")) reset();
    if (!strcmp(scene, "ends-within")) ends_within();
    if (!strcmp(scene, "closes-standard-error")) closes_standard_error(path);
    if (!strcmp(scene, "redirects-standard-error")) redirects_standard_error(path);
    if (!strcmp(scene, "frees-beside")) frees_beside();
    if (!strcmp(scene, "writes-the-run-file")) writes_the_run_file();
    if (!strcmp(scene, "changes-folder") && chdir("/")) return 1;
    take(MIB);
    if (!strcmp(scene, "lingers")) usleep(1500000);
    return 0;
}
