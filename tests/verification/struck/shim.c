/* Strikes the process that it is preloaded into at one of its calls: see strike.py, which has the same words.

STRUCK_LOG: where calls are recorded, or with STRUCK_PLAN the strike alone, one a line: microseconds, commits, call,
place, process, path. Commits are the times that a ledger was synced before. Without STRUCK_LOG, nothing happens.
STRUCK_PLAN: HOW COMMITS CALL PLACE NUMBER: at the NUMBER-th such call once there are so many commits.
STRUCK_STATE: the folder whose files are "state". STRUCK_CLOCK: a file of 8 bytes, the seconds that this laptop slept. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum place { STATE, SSH, CLOUD, OTHER };
static const char *const PLACES[] = {"state", "ssh", "cloud", "other"};
static const in_addr_t VMS = 127u << 24 | 77u << 16; /* the local cloud's VMs: 127.77.0.0/16 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t armed; /* the process that is struck; what it forks is not */
static int done, log_fd, commits;
static char state[PATH_MAX], how[16], planned_call[16], planned_place[16];
static int planned_commits = -1, planned_number, counted;
static volatile long *slept_s;
static time_t struck_at;

static int is_armed(void) {
    const char *log = armed ? "" : getenv("STRUCK_LOG"), *plan = getenv("STRUCK_PLAN"), *clock = getenv("STRUCK_CLOCK");
    if (armed || !log) return armed == getpid();
    snprintf(state, sizeof state, "%s/", getenv("STRUCK_STATE"));
    int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 800);
    syscall(SYS_close, fd);
    if (plan)
        sscanf(plan, "%15s %d %15s %15s %d", how, &planned_commits, planned_call, planned_place, &planned_number);
    fd = (int)syscall(SYS_openat, AT_FDCWD, clock, O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof *slept_s, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) slept_s = mapped;
    syscall(SYS_close, fd);
    armed = getpid();
    return 1;
}

static enum place of_path(const char *path) { return strncmp(path, state, strlen(state)) ? OTHER : STATE; }

static enum place of_address(const struct sockaddr *to) {
    if (to->sa_family != AF_INET) return OTHER;
    in_addr_t address = ntohl(((const struct sockaddr_in *)to)->sin_addr.s_addr);
    return (address & 0xffff0000u) == VMS ? SSH : CLOUD;
}

static enum place of_fd(int fd, char *path) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    if (strncmp(path, "socket:", 7)) return of_path(path);
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &size) ? OTHER : of_address((struct sockaddr *)&peer);
}

static void note(const char *call, enum place place, const char *path) {
    char line[PATH_MAX + 100];
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    int length = snprintf(line, sizeof line, "%ld %d %s %s %d %s\n", now.tv_sec * 1000000L + now.tv_nsec / 1000, commits,
                          call, PLACES[place], getpid(), *path ? path : "-");
    syscall(SYS_write, log_fd, line, length);
}

/* The error that a call of this kind ends with, once struck; 0: it goes on. */
static int error_of(int fd) {
    if (!strncmp(how, "EIO", 3)) return EIO;
    if (!strncmp(how, "ENOSPC", 6)) return ENOSPC;
    if (!strncmp(how, "CUT", 3)) {
        if (fd >= 0) syscall(SYS_shutdown, fd, SHUT_RDWR);
        return ECONNRESET;
    }
    return 0;
}

static int effect(int fd) {
    if (!strcmp(how, "SIGKILL")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "SIGINT")) kill(getpid(), SIGINT);
    if (!strncmp(how, "SIGTERM", 7)) kill(getpid(), SIGTERM);
    if (!strncmp(how, "SLEEP", 5)) kill(getpid(), SIGSTOP); /* whoever wakes it has moved the clocks */
    return error_of(fd);
}

/* What goes on failing after the first time: every file on a full disk; for a while, every connection. */
static int lasts(enum place place) {
    if (!done || strcmp(PLACES[place], planned_place)) return 0;
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return !strcmp(how, "ENOSPC+") || (!strcmp(how, "CUT100S") && now.tv_sec - struck_at < 100);
}

static int struck(const char *call, enum place place, const char *path, int fd) {
    int is_now = 0, error = 0, kept = errno;
    pthread_mutex_lock(&lock);
    if (planned_commits < 0)
        note(call, place, path);
    else if (!done && commits >= planned_commits && !strcmp(call, planned_call) && !strcmp(PLACES[place], planned_place))
        is_now = done = ++counted == planned_number;
    if (is_now) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        struck_at = now.tv_sec;
        note(call, place, path);
    }
    if (!strcmp(call, "fdatasync") && strstr(path, "ledger.db-wal")) commits++;
    pthread_mutex_unlock(&lock);
    if (is_now)
        error = effect(fd);
    else if (lasts(place) && strcmp(call, "unlink"))
        error = error_of(fd);
    errno = error ? error : kept;
    return error;
}

static int struck_fd(const char *call, int fd) {
    char path[PATH_MAX] = "";
    if (!is_armed()) return 0;
    enum place place = of_fd(fd, path);
    return struck(call, place, path, fd);
}

static int struck_path(const char *call, const char *path) {
    char whole[2 * PATH_MAX];
    if (!is_armed()) return 0;
    char here[PATH_MAX] = "";
    if (path[0] != '/' && !getcwd(here, sizeof here)) here[0] = 0;
    snprintf(whole, sizeof whole, "%s%s%s", here, path[0] == '/' ? "" : "/", path);
    return struck(call, of_path(whole), whole, -1);
}

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))
#define BY_FD(result, name, as, arguments, given)                                                                      \
    result name arguments {                                                                                            \
        static __typeof__(name) *next;                                                                                 \
        if (!next) next = NEXT(name);                                                                                  \
        return struck_fd(as, fd) ? -1 : next given;                                                                    \
    }
#define BY_PATH(name, as, arguments, given)                                                                            \
    int name arguments {                                                                                               \
        static __typeof__(name) *next;                                                                                 \
        if (!next) next = NEXT(name);                                                                                  \
        return struck_path(as, path) ? -1 : next given;                                                                \
    }

BY_FD(ssize_t, write, "write", (int fd, const void *data, size_t size), (fd, data, size))
BY_FD(ssize_t, writev, "write", (int fd, const struct iovec *data, int count), (fd, data, count))
BY_FD(ssize_t, pwrite, "pwrite", (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
BY_FD(ssize_t, pwrite64, "pwrite", (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
BY_FD(int, fsync, "fsync", (int fd), (fd))
BY_FD(int, fdatasync, "fdatasync", (int fd), (fd))
BY_FD(int, ftruncate, "ftruncate", (int fd, off_t size), (fd, size))
BY_FD(int, ftruncate64, "ftruncate", (int fd, off64_t size), (fd, size))
BY_FD(ssize_t, send, "send", (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
BY_FD(ssize_t, sendmsg, "send", (int fd, const struct msghdr *message, int flags), (fd, message, flags))
BY_PATH(rename, "rename", (const char *path, const char *to), (path, to))
BY_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
BY_PATH(unlink, "unlink", (const char *path), (path))
BY_PATH(chmod, "chmod", (const char *path, mode_t mode), (path, mode))

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    if (is_armed() && struck("connect", of_address(to), "", -1)) return -1;
    return NEXT(connect)(fd, to, size);
}

int pthread_create(pthread_t *made, const pthread_attr_t *with, void *(*run)(void *), void *given) {
    if (is_armed()) struck("thread", OTHER, "", -1);
    return NEXT(pthread_create)(made, with, run, given);
}

/* Only where a file is made: what is there can be opened on a full disk. */
static int struck_open(const char *path, int flags) {
    struct stat64 found;
    return flags & O_CREAT && stat64(path, &found) && struck_path("create", path);
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        return struck_open(path, flags) ? -1 : NEXT(name)(path, flags, mode);                                          \
    }
OPEN(open)
OPEN(open64)

int clock_gettime(clockid_t which, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, which, at);
    int counts_sleep = which == CLOCK_REALTIME || which == CLOCK_BOOTTIME || which == CLOCK_REALTIME_COARSE;
    if (!failed && slept_s && counts_sleep) at->tv_sec += *slept_s;
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    int failed = (int)syscall(SYS_gettimeofday, at, zone);
    if (!failed && slept_s) at->tv_sec += *slept_s;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? (*at = now.tv_sec) : now.tv_sec;
}
