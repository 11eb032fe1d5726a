/* Counts writes, syncs, renames and links of files below a folder, in a process and all that it forks. One of them, by
   its number, fails or kills its process. Loaded by LD_PRELOAD; `fault_arm` begins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static long *count, chosen;
static int error_number, log_file = -1;

/* how: an error number, or 0 to kill; number 0: nothing is hit */
void fault_arm(const char *below, const char *log, long number, int how) {
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    chosen = number;
    error_number = how;
    log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    strcpy(folder, below);
}

static int hit(const char *what, const char *path) {
    char line[5000];
    if (!folder[0] || strncmp(path, folder, strlen(folder))) return 0;
    long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    int length = snprintf(line, sizeof line, "%s %s\n", what, path + strlen(folder));
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    real(log_file, line, length);
    if (number != chosen) return 0;
    if (!error_number) kill(getpid(), SIGKILL);
    errno = error_number;
    return 1;
}

static int hit_file(const char *what, int file) {
    char link[64], path[4096];
    if (!folder[0] || file == log_file) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return hit(what, path);
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)
#define ON_FILE(type, name, what, parameters, arguments) \
    type name parameters { static type (*real) parameters; if (!real) real = dlsym(RTLD_NEXT, #name); \
        return hit_file(what, file) ? -1 : real arguments; }

ON_FILE(ssize_t, write, "write", (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, writev, "write", (int file, const struct iovec *data, int size), (file, data, size))
ON_FILE(ssize_t, pwrite64, "write", (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(int, ftruncate64, "write", (int file, off64_t size), (file, size))
ON_FILE(int, fsync, "sync", (int file), (file))
ON_FILE(int, fdatasync, "sync", (int file), (file))

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return hit("rename", to) ? -1 : real(from, to);
}

int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    return hit("link", to) ? -1 : real(from, to);
}

int posix_fallocate64(int file, off64_t start, off64_t size) {
    REAL(int, posix_fallocate64, int, off64_t, off64_t);
    return hit_file("write", file) ? errno : real(file, start, size);
}
