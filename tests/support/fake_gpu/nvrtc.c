/* A compiler of NVIDIA that compiles for the host: its machine code names the shared object that `g++` makes of the text and `kernel.h`.
 *
 * Environment:
 *   FAKE_NVRTC_VERSION   default 13.0
 *   FAKE_NVRTC_LOG       nothing compiles, and this is why
 *   FAKE_NVRTC_KERNELS   nothing compiles but short texts, and this is why
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVRTC __attribute__((visibility("default"))) int
#define COMMAND "g++ -std=gnu++17 -Og -ffp-contract=off -fno-math-errno -fno-trapping-math -w -shared -fPIC"

typedef struct { char *text, code[500], log[4000]; } Program;

NVRTC nvrtcVersion(int *major, int *minor) {
    const char *version = getenv("FAKE_NVRTC_VERSION");
    return sscanf(version ? version : "13.0", "%d.%d", major, minor) != 2;
}
NVRTC nvrtcCreateProgram(Program **program, const char *text) {
    *program = calloc(1, sizeof **program);
    (*program)->text = strdup(text);
    return 0;
}
NVRTC nvrtcDestroyProgram(Program **program) { return free((*program)->text), free(*program), 0; }

NVRTC nvrtcCompileProgram(Program *program) {
    char folder[300], made[400], command[1200];
    const char *refused = getenv("FAKE_NVRTC_LOG");
    if (!refused && strlen(program->text) > 1000) refused = getenv("FAKE_NVRTC_KERNELS");
    if (refused) return snprintf(program->log, sizeof program->log, "%s", refused), 6;

    Dl_info self;
    dladdr((void *)nvrtcVersion, &self);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(self.dli_fname, '/') - self.dli_fname), self.dli_fname);
    uint64_t digest = 14695981039346656037ull; /* FNV-1a */
    for (const char *c = program->text; *c; ++c) digest = (digest ^ (unsigned char)*c) * 1099511628211ull;
    snprintf(program->code, sizeof program->code, "\x7f""ELF FAKE %s/%016llx.so", folder, (unsigned long long)digest);
    if (!access(program->code + 10, R_OK)) return 0;

    snprintf(made, sizeof made, "%s.%d.%p", program->code + 10, getpid(), (void *)program);
    snprintf(command, sizeof command, "%s.cpp", made);
    FILE *file = fopen(command, "w");
    if (!file) return 1;
    fprintf(file, "#include \"%s/kernel.h\"\n%s\nKERNEL(rounds)\n", folder, program->text);
    fclose(file);
    snprintf(command, sizeof command, COMMAND " -o %s %s.cpp 2>&1", made, made);
    FILE *errors = popen(command, "r");
    fread(program->log, 1, sizeof program->log - 1, errors);
    if (pclose(errors)) return 6;
    return rename(made, program->code + 10);
}
NVRTC nvrtcGetCUBINSize(Program *program, size_t *bytes) { return *bytes = strlen(program->code) + 1, 0; }
NVRTC nvrtcGetCUBIN(Program *program, char *code) { return strcpy(code, program->code), 0; }
NVRTC nvrtcGetProgramLogSize(Program *program, size_t *bytes) { return *bytes = strlen(program->log) + 1, 0; }
NVRTC nvrtcGetProgramLog(Program *program, char *log) { return strcpy(log, program->log), 0; }
