/* A disk that fails, or tells what it was asked: between the C library and whoever calls it.
 *
 * Loaded with LD_PRELOAD; a forked child turns it on for itself through ctypes:
 *   disk_fail(prefix, calls, nth, error, again)  the nth of these calls on a path below prefix fails
 *                                                (error -1: SIGKILL instead; -2: half a write), all
 *                                                later ones too where `again` is not 0
 *   disk_seen()                                  how many such calls there were
 *   disk_record(prefix, fd), disk_mark(text)     write every change, with its bytes, and marks to fd
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char prefix[PATH_MAX];
static size_t prefix_length;
static char calls[256];
static int nth, failing, again;
static volatile int seen;
static int recording = -1;

void disk_fail(const char *where, const char *which, int number, int error, int more) {
    snprintf(prefix, sizeof prefix, "%s", where);
    prefix_length = strlen(prefix);
    snprintf(calls, sizeof calls, ",%s,", which);
    nth = number, failing = error, again = more, seen = 0;
}

int disk_seen(void) { return seen; }

void disk_record(const char *where, int fd) {
    snprintf(prefix, sizeof prefix, "%s", where);
    prefix_length = strlen(prefix);
    recording = fd;
}

static int below(const char *path) {
    return prefix_length && path && strncmp(path, prefix, prefix_length) == 0;
}

/* The path behind a descriptor, if it is one of those that concern us. */
static int path_of(int fd, char *path) {
    char link[64];
    if (!prefix_length || fd < 0 || fd == recording) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, (size_t)PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

/* What is to happen to this call: 0 nothing, 1 it fails (errno is set), 2 half of it is done. */
static int fate(const char *call) {
    char name[32];
    if (!nth) return 0;
    snprintf(name, sizeof name, ",%s,", call);
    if (!strstr(calls, name) && strcmp(calls, ",any,")) return 0;
    int number = __sync_add_and_fetch(&seen, 1);
    if (number != nth && !(again && number > nth)) return 0;
    if (failing == -1) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    if (failing == -2) return strcmp(call, "write") && strcmp(call, "pwrite64") ? 0 : 2;
    errno = failing;
    return 1;
}

static void tell(char op, uint64_t inode, int64_t offset, const char *path, const char *other,
                 const void *data, uint32_t length) {
    if (recording < 0) return;
    int kept = errno;
    struct __attribute__((packed)) {
        char op;
        uint64_t inode;
        int64_t offset;
        uint32_t path, other, data;
    } head = {op, inode, offset, (uint32_t)strlen(path), (uint32_t)strlen(other), length};
    struct iovec parts[4] = {{&head, sizeof head},
                             {(void *)path, head.path},
                             {(void *)other, head.other},
                             {(void *)data, length}};
    syscall(SYS_writev, recording, parts, 4);
    errno = kept;
}

void disk_mark(const char *text) { tell('M', 0, 0, "", "", text, (uint32_t)strlen(text)); }

static uint64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define ON_DESCRIPTOR(call, fd, failed) \
    char path[PATH_MAX]; \
    int ours = path_of(fd, path); \
    int fated = ours ? fate(call) : 0; \
    if (fated == 1) return failed

ssize_t write(int fd, const void *data, size_t length) {
    REAL(write);
    ON_DESCRIPTOR("write", fd, -1);
    if (!ours) return real(fd, data, length);
    struct stat found;
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    int64_t at = appends && !fstat(fd, &found) ? found.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t done = real(fd, data, fated == 2 ? length / 2 : length);
    if (done > 0) tell('W', inode_of(fd), at, path, "", data, (uint32_t)done);
    return done;
}

static ssize_t write_at(ssize_t (*real)(int, const void *, size_t, off64_t), int fd,
                        const void *data, size_t length, off64_t at) {
    ON_DESCRIPTOR("pwrite64", fd, -1);
    ssize_t done = real(fd, data, fated == 2 ? length / 2 : length, at);
    if (ours && done > 0) tell('W', inode_of(fd), at, path, "", data, (uint32_t)done);
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    REAL(pwrite);
    return write_at(real, fd, data, length, at);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    REAL(pwrite64);
    return write_at(real, fd, data, length, at);
}

int fsync(int fd) {
    REAL(fsync);
    ON_DESCRIPTOR("fsync", fd, -1);
    int done = real(fd);
    if (ours && !done) tell('S', inode_of(fd), 0, path, "", "", 0);
    return done;
}
int fdatasync(int fd) {
    REAL(fdatasync);
    ON_DESCRIPTOR("fdatasync", fd, -1);
    int done = real(fd);
    if (ours && !done) tell('S', inode_of(fd), 0, path, "", "", 0);
    return done;
}

static int cut(int (*real)(int, off64_t), int fd, off64_t size) {
    ON_DESCRIPTOR("ftruncate", fd, -1);
    int done = real(fd, size);
    if (ours && !done) tell('T', inode_of(fd), size, path, "", "", 0);
    return done;
}
int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    return cut(real, fd, size);
}
int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    return cut(real, fd, size);
}

static int grow(const char *name, int fd, int mode, off64_t at, off64_t size) {
    ON_DESCRIPTOR("fallocate", fd, strcmp(name, "posix") ? -1 : failing);
    long done = syscall(SYS_fallocate, fd, mode, at, size);
    struct stat found;
    if (ours && !done && !fstat(fd, &found)) tell('T', found.st_ino, found.st_size, path, "", "", 0);
    return done && !strcmp(name, "posix") ? errno : (int)done;
}
int fallocate(int fd, int mode, off_t at, off_t size) { return grow("linux", fd, mode, at, size); }
int fallocate64(int fd, int mode, off64_t at, off64_t size) { return grow("linux", fd, mode, at, size); }
int posix_fallocate(int fd, off_t at, off_t size) { return grow("posix", fd, 0, at, size); }
int posix_fallocate64(int fd, off64_t at, off64_t size) { return grow("posix", fd, 0, at, size); }

static void *map(void *(*real)(void *, size_t, int, int, int, off64_t), void *where, size_t length,
                 int protection, int flags, int fd, off64_t at) {
    ON_DESCRIPTOR("mmap", fd, MAP_FAILED);
    return real(where, length, protection, flags, fd, at);
}
void *mmap(void *where, size_t length, int protection, int flags, int fd, off_t at) {
    REAL(mmap);
    return map(real, where, length, protection, flags, fd, at);
}
void *mmap64(void *where, size_t length, int protection, int flags, int fd, off64_t at) {
    REAL(mmap64);
    return map(real, where, length, protection, flags, fd, at);
}

static ssize_t read_at(ssize_t (*real)(int, void *, size_t, off64_t), int fd, void *data,
                       size_t length, off64_t at) {
    ON_DESCRIPTOR("read", fd, -1);
    return real(fd, data, length, at);
}
ssize_t pread(int fd, void *data, size_t length, off_t at) {
    REAL(pread);
    return read_at(real, fd, data, length, at);
}
ssize_t pread64(int fd, void *data, size_t length, off64_t at) {
    REAL(pread64);
    return read_at(real, fd, data, length, at);
}
ssize_t read(int fd, void *data, size_t length) {
    REAL(read);
    ON_DESCRIPTOR("read", fd, -1);
    return real(fd, data, length);
}

/* Names: created, truncated at opening, renamed, removed. */
static int opened(const char *path, int flags, mode_t mode) {
    int ours = below(path);
    if (ours && fate("open") == 1) return -1;
    struct stat before;
    int there = ours && syscall(SYS_newfstatat, AT_FDCWD, path, &before, 0) == 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (ours && fd >= 0) {
        if (!there && (flags & O_CREAT)) tell('C', inode_of(fd), 0, path, "", "", 0);
        if (there && (flags & O_TRUNC)) tell('T', inode_of(fd), 0, path, "", "", 0);
    }
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return opened(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(path, flags, mode); }
int __open_2(const char *path, int flags) { return opened(path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(path, flags, 0); }

/* As an opening that creates: it fails with those. */
int mknod(const char *path, mode_t mode, dev_t device) {
    REAL(mknod);
    int ours = below(path);
    if (ours && fate("open") == 1) return -1;
    int done = real(path, mode, device);
    struct stat made;
    if (ours && !done && syscall(SYS_newfstatat, AT_FDCWD, path, &made, 0) == 0)
        tell('C', made.st_ino, 0, path, "", "", 0);
    return done;
}
int rename(const char *from, const char *to) {
    REAL(rename);
    int ours = below(to);
    if (ours && fate("rename") == 1) return -1;
    int done = real(from, to);
    if (ours && !done) tell('R', 0, 0, from, to, "", 0);
    return done;
}
int link(const char *from, const char *to) {
    REAL(link);
    int ours = below(to);
    if (ours && fate("link") == 1) return -1;
    int done = real(from, to);
    if (ours && !done) tell('L', 0, 0, from, to, "", 0);
    return done;
}
int unlink(const char *path) {
    REAL(unlink);
    int ours = below(path);
    if (ours && fate("unlink") == 1) return -1;
    int done = real(path);
    if (ours && !done) tell('U', 0, 0, path, "", "", 0);
    return done;
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    int ours = below(path);
    if (ours && fate("mkdir") == 1) return -1;
    int done = real(path, mode);
    if (ours && !done) tell('D', 0, 0, path, "", "", 0);
    return done;
}
