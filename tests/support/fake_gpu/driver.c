/* A driver of NVIDIA whose device is the host: its memory is the host's, and a kernel of jaxroute is a shared object that `nvrtc.c` made. XLA's
 * own kernels and graphs do nothing. Names that have no function here return 0 (`__init__.py`).
 *
 * A launch computes at once, and then the device is busy for as long as it takes: what waits for a stream waits for that.
 *
 * Environment (a status is `NUMBER`, or `NUMBER@N` from the N-th call on):
 *   FAKE_GPU_LOG       file for modules, launches and waiting
 *   FAKE_GPU_DEVICES   number of devices; default 1
 *   FAKE_GPU_DRIVER    version of CUDA that the driver supports; default 13000
 *   FAKE_GPU_FREE      bytes of memory that are free; default 60e9 of 80e9
 *   FAKE_GPU_LOCAL     bytes of local memory of a thread of a kernel; default 0
 *   FAKE_GPU_REGISTERS registers of a thread of a kernel; default 64
 *   FAKE_GPU_ROUND_S   seconds that a round takes, however many runs there are; default 0
 *   FAKE_GPU_LOAD      status of cuModuleLoadData
 *   FAKE_GPU_LAUNCH    status of cuLaunchKernel
 *   FAKE_GPU_FAULT     status of whatever waits for a launch, and of all calls after that
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CU int
enum { INVALID = 1, OUT_OF_MEMORY = 2, NOT_SUPPORTED = 3, NO_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400 };
enum { THREADS = 2048, PROCESSORS = 132 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void say(const char *format, ...) {
    const char *path = getenv("FAKE_GPU_LOG");
    FILE *file = path ? fopen(path, "a") : 0;
    if (!file) return;
    va_list arguments;
    va_start(arguments, format);
    char line[400];
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(file, "%.3f %s\n", now(), line);
    fclose(file);
}

static double number(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

/* The status of the next call of which an environment variable decides. */
static int status(const char *name, int *calls) {
    const char *text = getenv(name);
    int found = 0, from = 1;
    const int call = __atomic_add_fetch(calls, 1, __ATOMIC_SEQ_CST);
    if (text) sscanf(text, "%d@%d", &found, &from);
    return call >= from ? found : 0;
}

/* Devices: H100s by name */
CU cuInit() { return 0; }
CU cuDriverGetVersion(int *version) { return *version = number("FAKE_GPU_DRIVER", 13000), 0; }
CU cuDeviceGetCount(int *count) { return *count = number("FAKE_GPU_DEVICES", 1), 0; }
CU cuDeviceGet(int *device, int i) { return *device = i, i < number("FAKE_GPU_DEVICES", 1) ? 0 : 101; }
CU cuDeviceGetName(char *name, int length, int device) { return snprintf(name, length, "NVIDIA H100 80GB HBM3"), 0; }
CU cuDeviceGetPCIBusId(char *id, int length, int device) { return snprintf(id, length, "0000:%02X:00.0", device + 1), 0; }
CU cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 80e9, 0; }
CU cuDeviceGetAttribute(int *value, int attribute, int device) {
    static const int known[][2] = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536}, {10, 32}, {12, 65536},
        {13, 1980000}, {16, PROCESSORS}, {36, 2619000}, {37, 5120}, {38, 52428800}, {39, THREADS}, {41, 1}, {75, 9}, {81, 233472},
        {82, 65536}, {97, 232448}, {102, 1}, {106, 32},
    };
    *value = attribute == 33 ? device + 1 : 0;
    for (unsigned i = 0; i < sizeof known / sizeof *known; ++i)
        if (known[i][0] == attribute) *value = known[i][1];
    return 0;
}

/* Contexts: one of each device, and a stack of them in each thread */
static char contexts[64];
static __thread void *stack[64];
static __thread int depth;
CU cuDevicePrimaryCtxRetain(void **context, int device) { return *context = contexts + device, 0; }
CU cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = 1, 0; }
CU cuCtxGetCurrent(void **context) { return *context = stack[depth], 0; }
CU cuCtxSetCurrent(void *context) { return stack[depth] = context, 0; }
CU cuCtxPushCurrent_v2(void *context) { return stack[++depth] = context, 0; }
CU cuCtxPopCurrent_v2(void **context) {
    if (!depth) return NO_CONTEXT;
    *context = stack[depth--];
    return 0;
}
CU cuCtxGetDevice(int *device) { return stack[depth] ? *device = (char *)stack[depth] - contexts, 0 : NO_CONTEXT; }
CU cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, 0; }

/* Time: until when each device is busy, and what went wrong there */
static double busy[sizeof contexts];
static int fault;
static int wait(void) {
    pthread_mutex_lock(&lock);
    const double left = stack[depth] ? busy[(char *)stack[depth] - contexts] - now() : 0;
    pthread_mutex_unlock(&lock);
    if (left > 0) usleep(1e6 * left);
    return fault;
}

/* Memory */
static void *zeros(size_t bytes) { return mmap(0, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }
static int reserved(void **place, size_t bytes) { return (*place = zeros(bytes)) == MAP_FAILED ? OUT_OF_MEMORY : 0; }
static int copied(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes), wait(); }
CU cuMemGetInfo_v2(size_t *left, size_t *total) { return *left = number("FAKE_GPU_FREE", 60e9), *total = 80e9, 0; }
CU cuMemAlloc_v2(void **place, size_t bytes) { return reserved(place, bytes); }
CU cuMemHostAlloc(void **place, size_t bytes, unsigned flags) { return reserved(place, bytes); }
CU cuMemAddressReserve(void **place, size_t bytes) { return reserved(place, bytes); }
CU cuMemGetAllocationGranularity(size_t *bytes) { return *bytes = 2 << 20, 0; }
CU cuPointerGetAttribute(int *value, int attribute, void *place) { return *value = attribute == 2 ? 2 : 0, 0; }
CU cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { return copied(to, from, bytes); }
CU cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) { return copied(to, from, bytes); }
CU cuMemcpyDtoD_v2(void *to, const void *from, size_t bytes) { return copied(to, from, bytes); }
CU cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return copied(to, from, bytes); }
CU cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return copied(to, from, bytes); }
CU cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return copied(to, from, bytes); }
CU cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream) { return copied(to, from, bytes); }
CU cuMemsetD8Async(void *to, unsigned char value, size_t bytes, void *stream) { return memset(to, value, bytes), 0; }
CU cuMemsetD32Async(unsigned *to, unsigned value, size_t count, void *stream) {
    while (count--) *to++ = value;
    return 0;
}

/* Streams and events */
typedef struct { void *context; } Stream;
CU cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    *stream = malloc(sizeof **stream);
    (*stream)->context = stack[depth];
    return 0;
}
CU cuStreamCreate(Stream **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
CU cuStreamGetCtx(Stream *stream, void **context) { return *context = stream ? stream->context : stack[depth], 0; }
CU cuStreamSynchronize(Stream *stream) { return wait(); }
CU cuCtxSynchronize(void) { return wait(); }
CU cuEventSynchronize(void *event) { return wait(); }
CU cuEventCreate(void **event, unsigned flags) { return *event = malloc(1), 0; }
CU cuStreamIsCapturing(void *stream, int *state) { return *state = 0, 0; }
CU cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) { return wait(), function(data), fault; }

/* Modules: the machine code of a kernel of jaxroute names a shared object */
typedef struct { void (*launch)(void **, unsigned, unsigned, unsigned); int (*rounds)(void **), *trial; void *context; } Module;
CU cuModuleLoadData(Module **module, const char *image) {
    static int calls;
    *module = calloc(1, sizeof **module);
    if (strncmp(image, "\x7f""ELF FAKE ", 10)) return 0;
    say("load in context %d", (int)((char *)stack[depth] - contexts));
    if (!stack[depth]) return NO_CONTEXT;
    void *library = dlopen(image + 10, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NO_BINARY;
    **module = (Module){dlsym(library, "fake_launch"), dlsym(library, "fake_rounds"), dlsym(library, "fake_trial"), stack[depth]};
    return status("FAKE_GPU_LOAD", &calls);
}
CU cuModuleLoadDataEx(Module **module, const char *image, unsigned count, void *options, void *values) { return cuModuleLoadData(module, image); }
CU cuModuleLoadFatBinary(Module **module, const void *image) { return *module = calloc(1, sizeof **module), 0; }
CU cuModuleGetFunction(Module **function, Module *module, const char *name) { return *function = module, 0; }
CU cuModuleGetGlobal_v2(void **place, size_t *bytes, void *module, const char *name) { /* A constant that XLA fills, without asking for its size */
    const size_t most = 64 << 20;
    if (bytes) *bytes = most;
    return reserved(place, most);
}
CU cuFuncGetAttribute(int *value, int attribute, Module *function) {
    const int own = function && function->trial && !*function->trial;
    *value = attribute == 0 ? 1024 : attribute == 3 && own ? number("FAKE_GPU_LOCAL", 0) : attribute == 4 ? number("FAKE_GPU_REGISTERS", 64) : 0;
    return 0;
}

/* Launches */
CU cuLaunchKernel(Module *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *stream,
                  void **arguments, void **extra) {
    static int calls, faults;
    if (!f || !f->launch) return fault;
    const int device = (char *)f->context - contexts, failed = status("FAKE_GPU_LAUNCH", &calls), rounds = f->rounds(arguments);
    say("launch %u x %u blocks of %u, %d rounds, device %d%s", gx, gy, bx, rounds, device, failed ? ", refused" : "");
    if (f->context != (stream ? stream->context : stack[depth])) return INVALID_HANDLE;
    if (!gx || !gy || gy > 65535 || gz != 1 || bx > 1024 || by != 1 || bz != 1) return INVALID;
    if (failed || fault) return failed ? failed : fault;
    f->launch(arguments, gx, gy, bx);
    fault = status("FAKE_GPU_FAULT", &faults);
    pthread_mutex_lock(&lock);
    busy[device] = (busy[device] > now() ? busy[device] : now()) + rounds * number("FAKE_GPU_ROUND_S", 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Graphs: built, and nothing in them is done */
typedef struct { int type, reserved[3]; uint64_t handle; int kind; unsigned size; void **graphs; } Conditional; /* Part of CUgraphNodeParams */
static int node(void **made, Conditional *given) {
    *made = malloc(1);
    if (given && given->type == 13) { /* The driver makes the graphs of its branches. */
        given->graphs = calloc(given->size, sizeof(void *));
        for (unsigned i = 0; i < given->size; ++i) given->graphs[i] = malloc(1);
    }
    return 0;
}
CU cuGraphCreate(void **graph, unsigned flags) { return node(graph, 0); }
CU cuGraphInstantiateWithFlags(void **made, void *graph, uint64_t flags) { return node(made, 0); }
CU cuGraphAddNode_v2(void **made, void *graph, const void *after, const void *edges, size_t count, Conditional *given) { return node(made, given); }
CU cuGraphAddKernelNode_v2(void **made, void *graph, const void *after, size_t count, const void *given) { return node(made, 0); }

/* Errors */
CU cuGetErrorName(int code, const char **name) { return *name = "CUDA_ERROR_OF_A_TEST", 0; }
CU cuGetErrorString(int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "out of memory" : code == NO_BINARY ? "no kernel image is available" : "an error of a test";
    return 0;
}

/* The CUDA runtime, which XLA asks for devices */
CU cudaGetDeviceCount(int *count) { return cuDeviceGetCount(count); }
CU cudaRuntimeGetVersion(int *version) { return *version = 13000, 0; }

/* cuDNN, of which XLA wants to see a new version */
CU cudnnCreate(void **handle) { return *handle = malloc(1), 0; }
CU cudnnGetProperty(int which, int *value) { return *value = which == 0 ? 9 : which == 1 ? 99 : 0, 0; }
size_t cudnnGetVersion(void) { return 99900; }

/* NVIDIA's management library, which knows nothing */
CU nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return "not supported"; }
